"""Users' data files: logits, labels and counts.

samples: logits, labels and counts, from one file or several
label_samples: the same for several labels per sample
arrays: one array of a file of any known format
counts_file: one number per class
names_file: class names
table: tables of predictions, and what their columns are
csv_table: CSV as other programs write it
numpy_file: .npy and .npz
torch_file: tensors that torch.save wrote
pickle_check: what the pickle in such a file would build
safetensors_file: the header of a safetensors file
text: text files and numbers in them
fields: dataclass fields checked by their annotations
"""
