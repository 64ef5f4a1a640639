"""Users' data files: logits, labels and counts. No code in a file is run.

The road of `levelhead tune --logits scores.csv`, from the outside in:

    samples_file.read           logits, labels, counts and names, compared with each other
      scores_file.read_scores   the logits, and which columns of a table are what
        arrays.read             one array of FILE or FILE:KEY
          array_formats.FORMATS a reader for each suffix: (file, key, wanted) -> array
            numpy_file, safetensors_file, torch_file, table_file: the bytes

`levelhead apply` takes another one, for files larger than the memory: parts.read_parts yields rows
as they are read, and parts_written.write_parts takes them as they are done.

samples_file, scores_file: logits, labels, counts and names, of one file or several; the logits
parts, parts_written: scores read, and written, a part at a time
arrays: one array of a file of any known format; counts, shares and names
array_formats, class_formats: readers of arrays by suffix; what counts and names look like in files
table, table_file, table_columns: tables of predictions, and which of their columns are what
table_text, table_parquet, numpy_file, torch_file, safetensors_file: the formats
pickle_check: that the pickle in a file of torch builds no more than a checkpoint does

Two promises hold for every reader. A file is believed in nothing that could be checked first: what
it claims to hold is compared with its size before memory is asked for. And whatever is wrong with
it is a `LevelheadError` of one line that begins with the name of the file; a reader raises it
without the name, and `in_file` around it puts the name there. Rules and metrics are not known here.
"""
