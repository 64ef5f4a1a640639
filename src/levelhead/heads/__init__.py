"""Heads: where one can be (`Place`), how it is adjusted there, and heads of models in memory.

`lh.adjust_(model, tuned)` opens the model as a place, which finds its head; `apply` checks that the
change fits and arrives in the logits, computes the new head and has the place write it; `Adjusted`
says what was done and has the way back. In an order to read them:

choice, place: what to do; where a head is
adjust, apply: `adjust_` and its kin; the body that they and files share, with all checks
adjusted: what was done, and the way back
in_memory: what the places of torch and Keras models have in common: find, mark, write, restore
notes: the note about an adjustment, in files and in configs of models and adapters
candidates: which layer is the head by names and shapes, of modules and of files
torch, torch_layers: a torch module as a place; the layers that it has
torch_find, torch_around: which of them is the head; what stands around it and may bend its outputs
torch_plain, torch_shards: whether a layer's numbers can be changed; parameters that FSDP2 shards
torch_proof, probe: whether a change arrives in the logits; the model run with other weights
trace, tail: the model's forward without an input; what it does to the outputs of the head
keras, keras_find: a Keras model as a place; which of its layers is the head
graph, keras_graph: the walk from an output back to its linear layers; Keras's layers on the way
sklearn: the head of a scikit-learn classifier
collect, head_inputs, evaluating: logits, labels and the head's inputs of a torch model
along: offsets in a head without a bias, by those inputs
"""
