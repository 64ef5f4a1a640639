"""The basis of all rooms: what a head is, and the arithmetic on heads, counts and logits. Needs numpy only.

head: `Head`, the last linear layer of a classifier
adjust: the adjustments of a head, one equation each
strength: how strong an adjustment is, a number or what was tuned
counts: training samples of each class
background: a class that every rule leaves alone
class_names: labels that are names of classes
positions: labels of tokens and pixels
measure: errors, recalls and calibration of predictions
geometry: angles and lengths of weight vectors and features
errors: `LevelheadError`, and the checks that several rooms share
warnings: the warning classes

choices: the words that parameters accept
curve: step functions of gamma
precision: what rounding to half precision can change
per_class: one value per class, given by class
label_task: one class or several labels per sample, where a model says so
model_note: the note about an adjustment in the config of a model or an adapter
head_names: the names of heads in models
array: operations on which numpy and torch differ
atomic: atomic file replacement
scratch: temporary files and folders, and those that a killed process left
cores: how many threads are worth starting
extras: libraries that only some parts need, and how to install them
regular_file: files that are read, regular and unchanged
"""
