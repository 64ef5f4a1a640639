"""Users' data files: logits, labels and counts.

samples_file: logits, labels and counts, from one file or several
per_class_file: names of classes, and shares
arrays: one array of a file of any known format, and counts
table: CSV and parquet tables of predictions, and what their columns are
numpy_file: .npy and .npz
torch_file: tensors that torch.save wrote
pickle_check: what the pickle in such a file would build
safetensors_file: the header of a safetensors file
text: text files, JSON and TOML
fields: dataclass fields checked by their annotations
counts_file: where `read_counts` was
"""
