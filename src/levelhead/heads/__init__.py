"""Heads: where one can be (`Place`), how it is adjusted there, and heads of models in memory.

place, apply, adjusted: where a head is; `adjust_` and its kin, with all checks; what was done, the way back
notes: the note about an adjustment, in files and in configs of models and adapters
candidates: which layer is the head by names and shapes, of modules and of files
torch, torch_layers: a torch module as a place; the layers that it has
torch_find, torch_around: which of them is the head; what stands around it and may bend its outputs
torch_proof, probe, trace: whether a change arrives in the logits, by an example or by what the model's forward does
keras, graph: a Keras model as a place; the walk from an output back to its linear layers, for ONNX and Keras
sklearn: the head of a scikit-learn classifier
collect, head_inputs, evaluating: logits, labels and the head's inputs of a torch model over a loader
along: offsets in a head without a bias, by those inputs
"""
