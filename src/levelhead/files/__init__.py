"""Heads in model files: safetensors, ONNX, state dicts and Keras, read and changed where they lie.

None of their code is run. Every other byte of a file stays as it is, what is written appears all at once, and every
change can be undone.

rescale: write a model's file with its head adjusted
place: the head in a file as a `Place`
adjust: the same, by what was tuned
inspect: look at the head in a model's file
undo: take an adjustment back
describe: their results as text
locate: the table of formats, and the head in a file of any of them
format: what the formats have in common
safetensors, onnx, state_dict, keras, keras_weights: one format each
hdf5: where the arrays of an HDF5 file lie
onnx_graph, onnx_parts, protobuf, zip: what ONNX, Keras and state dicts are made of
find: the head among the tensors of a file, by name and shape
spans: a head as byte ranges of a file
large_heads, blocks: heads too large to be held whole; bytes read while they are written
edits: files written as a few changed byte ranges, all or nothing
digest: the sha256 of a file, computed while it is copied
originals: the bytes kept for an exact undo
"""
