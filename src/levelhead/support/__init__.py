"""What any library has, and no noun of this one.

arrays, backend, columns: what numpy and torch do differently, logits as they come, numbered columns
read: logits in chunks, also of files larger than the memory
errors, warnings, types: `LevelheadError`, warning classes, the words that parameters accept
atomic, regular_file, text, fields: files written in one step; files that are read; JSON and its fields
extras, progress: libraries that may be missing; progress bars
"""
