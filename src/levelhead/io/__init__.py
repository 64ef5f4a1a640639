"""Users' data files: logits, labels and counts. No code in a file is run.

samples_file, counts_file: samples; where `read_counts` was
arrays: one array of a file of any known format; counts, shares and names
table, numpy_file, torch_file, safetensors_file: the formats
"""
