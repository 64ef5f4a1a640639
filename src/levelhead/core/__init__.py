"""The basis of all rooms: what a head is, and the arithmetic on counts and logits. Needs numpy only.

head, counts, labels, logits, kept_rows, curve, measure: the nouns, and what is left of logits read in chunks
array, per_class, errors, warnings, choices: what they share: arrays, classes, `LevelheadError`, accepted words
atomic, regular_file: files written in one step, and files that are read
extras, study: libraries that may be missing, and the package above this one
"""
