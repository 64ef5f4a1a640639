"""The basis of all rooms: what a head is, and the arithmetic on counts and logits. Needs numpy only.

head: `Head`, the last linear layer of a classifier; what its norms say, and what rounding it can change
counts: training samples of each class, and a class that every rule leaves alone
measure: errors, recalls and calibration of predictions
kept_rows: what is left of logits that were read in chunks
logits: probabilities of logits, and their temperature
curve: step functions of gamma, and the names of metrics
labels: labels that are names of classes, or of tokens and pixels
per_class: one value per class, given by class, and names of classes
array: operations on which numpy and torch differ, logits checked, threads and their tables
errors: `LevelheadError`, and the checks that several rooms share
warnings: the warning classes
choices: the words that parameters accept
atomic: files replaced in one step, and temporary ones
regular_file: files that are read, regular and unchanged
extras: libraries that only some parts need, and how to install them
study: the package above this one, looked up by name
"""
