"""Heads: where one can be (`Place`), how it is adjusted there, and heads of models in memory.

place, apply, adjusted: where a head is; `adjust_` and its kin, with all checks; what was done, the way back
notes: the note about an adjustment, in files and in configs of models and adapters
candidates: which layer is the head by names and shapes, of modules and of files
torch, torch_find, probe: a torch module as a place; which of its layers is the head; a forward pass that proves it
keras, graph: a Keras model as a place; the walk from an output back to its linear layers, for ONNX and Keras
sklearn, collect: the head of a scikit-learn classifier; the logits and labels of a torch model over a loader
"""
