"""Heads: where one can be (`Place`), how it is adjusted there, and heads of models in memory.

place: `Place`, where a head is; models in memory as one
apply: a rule applied to the head of any place; `adjust`, `adjust_`, `rescale_`
adjusted: what was done to a model in memory, and the way back
notes: the note about an adjustment, in files and in configs of models and adapters
candidates: which layer is the head by names and shapes, of modules and of files
torch: a torch module as a place; read and write its head; whether a layer can be changed in place
torch_find: which linear layer of a torch module is its head
probe: a forward pass that proves it
keras: a Keras model as a place; read and write its head
graph: the walk from an output of a model back to its linear layers, for ONNX and Keras
sklearn: read and write the head of a scikit-learn classifier
collect: the logits and labels of a torch model over a loader
"""
