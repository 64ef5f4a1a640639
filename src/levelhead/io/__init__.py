"""Users' data files: logits, labels and counts. No code in a file is run.

samples_file, per_class_file, counts_file: samples; names and shares; where `read_counts` was
arrays: one array of a file of any known format, and counts
table, numpy_file, torch_file, safetensors_file, text: the formats
fields: dataclass fields checked by their annotations
"""
