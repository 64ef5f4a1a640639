"""Heads in memory: found in torch modules and scikit-learn estimators, read as a `Head` and written back.

in_place: adjust the head of a torch module or a Keras model
torch: read and write the head of a torch module
torch_model: a torch module, as `in_place` changes it
keras: the same for a Keras model; read and write its head
keras_find: which layer of a Keras model is its head
adjusted: what was done to a model, and the way back
config_note: the note about it in the config of a transformers model or a PEFT adapter
adjust: a choice applied to a `Head`
sklearn: read and write the head of a scikit-learn classifier
find: which layer of a torch module is its head
layers: the linear layers of a torch module that a forward pass runs
probe: a forward pass that proves it
collect: the logits and labels of a torch model over a loader
candidates: the names of heads in models
model_note: the note about an adjustment in the config of a model or an adapter
editable: whether a layer can be changed in place
sharded: parameters that FSDP2 shards over processes
"""
