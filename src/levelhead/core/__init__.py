"""The basis of all rooms: what a head is, and the arithmetic on counts and logits. Needs numpy only.

head: `Head`, the last linear layer of a classifier
norms: how the norms of weight vectors go with counts
counts: training samples of each class
background: a class that every rule leaves alone
class_names: labels that are names of classes
positions: labels of tokens and pixels
measure: errors, recalls and calibration of predictions
temperature: the scale of scores
kept_rows: what is left of logits that were read in chunks
errors: `LevelheadError`, and the checks that several rooms share
warnings: the warning classes

choices: the words that parameters accept
curve: step functions of gamma
precision: what rounding to half precision can change
per_class: one value per class, given by class
array: operations on which numpy and torch differ
atomic: atomic file replacement
tables: tables of a thread, used again
study: the package above this one, looked up by name
temporary: temporary files and folders, and those that a killed process left
cores: how many threads are worth starting
extras: libraries that only some parts need, and how to install them
regular_file: files that are read, regular and unchanged
"""
