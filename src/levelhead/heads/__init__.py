"""Heads in memory: found in torch modules and scikit-learn estimators, read as a `Head` and written back.

torch: read, write and adjust the head of a torch module
adjusted: what was done to a torch module, and the way back
adjust: a choice applied to a `Head`
sklearn: read and write the head of a scikit-learn classifier
find: which layer of a torch module is its head
layers: the linear layers of a torch module that a forward pass runs
probe: a forward pass that proves it
editable: whether a layer can be changed in place
sharded: parameters that FSDP2 shards over processes
"""
