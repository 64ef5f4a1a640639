"""The basis of all rooms: what a head is, and the arithmetic on counts and logits. Needs numpy only.

head, counts, curve, measure: the nouns; labels as people have them
array, per_class, errors, warnings, choices: what they share: logits, classes, `LevelheadError`, accepted words
atomic, regular_file: files written in one step, and files that are read
extras: libraries that may be missing, and the package above this one
"""
