"""What any library has, and no noun of this one.

arrays, backend, columns: what numpy and torch do differently, numbered columns
logits, read: logits as they come, checked; the same in chunks, also of files larger than the memory
errors, warnings, types: `LevelheadError`, warning classes, the words that parameters accept
atomic, regular_file, text, fields: files written in one step; files that are read; JSON and its
fields extras, progress, threads: libraries that may be missing; progress bars; how many threads to
use

Every other room imports from here, and this one imports from none of them. Importing all of it
loads numpy and nothing heavier: torch, rich and importlib.metadata are looked for only where they
are used, since `import levelhead` is part of every command's time.
"""
