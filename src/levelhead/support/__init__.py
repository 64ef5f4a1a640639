"""What any library has: arrays, errors, files, progress. And logits, as they come and as they are checked.

Heads, rules, metrics and choices are not known here; the rooms above have them.

arrays, backend, columns: what numpy and torch do differently; columns that are numbered
logits, read: logits as they come, checked; the same in chunks, also of files larger than the memory
errors, warnings, types: `LevelheadError`, warning classes, the words that parameters accept
atomic, regular_file: files written in one step; files that are read, and stay the same meanwhile
text, fields: JSON and numbers in text; the fields of a record, written to JSON and read from it
extras, progress, threads: libraries that may be missing; progress bars; how many threads to use
terminal: how wide text is there, where columns are to stand below each other

Every other room imports from here, and this one imports from none of them. Importing all of it
loads numpy and nothing heavier: torch, rich and importlib.metadata are looked for only where they
are used, since `import levelhead` is part of every command's time.
"""
