"""Heads in model files, read and changed where they lie.

None of the files' code is run, and every change can be undone.

model: the head in a file as a `Place`; `adjust_file` writes a model's file with its head adjusted
inspect, undo: look at the head in a model's file; take an adjustment back
formats, format: the table of formats; what they have in common
locate: a model's file, its format, and the head in it
output: where an adjusted model is written, and what is copied along
safetensors, onnx, state_dict, keras, keras_weights, mlx: one format each, loaded when a file of it
    is opened
keras_config, keras_layers: the graph of a Keras model; its layers, and where their weights are
checkpoint, checkpoint_data: a checkpoint of torch, opened without its numbers; what stands in for
    what is no tensor
hdf5, protobuf, zip: what their files are made of
note_behind: a note behind a file's content, of formats that have no place for one
onnx_file, onnx_edits: the file of an ONNX model without its large numbers; what changes in it
onnx_graph, onnx_axes, onnx_layers, onnx_classifier, onnx_logit, onnx_patterns, onnx_walk: its graph,
    from single nodes to the way back from an output to the head
tensors, find, find_checks: the tensors of a file; the head among them, by name and shape; what
    speaks against it
shards: which tensor is in which file of a model in several
spans, located: a head as byte ranges of a file; the head in a model's file, once it is found
numbers, large: the numbers in these ranges, as a `Head`; those of a head too large to hold
edits: files written as a few changed byte ranges, with their sha256, which is computed meanwhile
staging, originals: files that appear all at once; what is kept for an exact undo

To read: model.py for the road of an adjustment, located.py and spans.py for what a reader returns,
format.py and edits.py for how it is written. Then one format: safetensors.py is the shortest, with
find.py for the head; onnx.py is the longest, with onnx_walk.py.
"""
