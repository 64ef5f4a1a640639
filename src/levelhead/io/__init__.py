"""Users' data files: logits, labels, counts, snapshots and choices of gamma.

snapshot: `Snapshot`, what is left of a training

samples: logits, labels and counts, from one file or several
arrays: one array of a .npy, .npz, .safetensors, .csv or .parquet file
counts_file: one number per class
tuned_json: a gamma that `levelhead tune` chose
csv_table: CSV as other programs write it
safetensors_file: the header of a safetensors file
text: text files and numbers in them
fields: dataclass fields checked by their annotations
"""
