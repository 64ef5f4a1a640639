"""Heads in model files: safetensors, ONNX, state dicts and Keras, read and changed where they lie.

None of their code is run. Every other byte of a file stays as it is, what is written appears all at once, and every
change can be undone.

model: the head in a file as a `Place`; write a model's file with its head adjusted, by a strength or by what was tuned
inspect, undo: look at the head in a model's file; take an adjustment back
describe: their results as text
locate: the table of formats, and the head in a file of any of them
format: what the formats have in common
safetensors, onnx, state_dict, keras: one format each; Keras has two
hdf5, onnx_graph, protobuf, zip: what their files are made of
find: the head among the tensors of a file, by name and shape
spans: a head as byte ranges of a file, also one that is too large to be held whole
edits: files written as a few changed byte ranges, all or nothing, and the bytes kept for an exact undo
digest: an edit, and the sha256 of a file, computed while it is copied
rescale, adjust: where `model` was
"""
