"""Users' data files: logits, labels and counts. No code in a file is run.

samples_file, scores_file: logits, labels, counts and names, of one file or several; the logits
parts, parts_written: scores read, and written, a part at a time
arrays: one array of a file of any known format; counts, shares and names
array_formats, class_formats: readers of arrays by suffix; what counts and names look like in files
table, table_file, table_columns: tables of predictions, and which of their columns are what
table_text, table_parquet, numpy_file, torch_file, safetensors_file: the formats
pickle_check: that the pickle in a file of torch builds no more than a checkpoint does
"""
