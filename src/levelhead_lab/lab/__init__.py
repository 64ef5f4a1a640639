"""One training: data, networks, recipes and the plain loop. It knows methods, but not the paper.

load, cifar, image_folder: data sets by name or path
downloads: where the official archives are
data: data sets as arrays: made imbalanced, split, hashed
recipe: optimizer, schedule and augmentation, from recipes.toml or a file
recipe_loss: what a recipe changes about a method's loss
cui2019: the losses of one of the papers whose rows are reproduced
nets: the networks, each a body and a head
train: the plain loop, on any device and any number of processes; weights averaged over the last
    epochs
snapshot: a trained head with features and labels: what is kept of a training
choices, progress: words that options accept; a bar for the epochs of a training
method_cards: the methods as text
epoch_plan: the samples, crops and flips of an epoch, drawn before it begins
preprocess: from stored images to the input of a network; features, snapshot and errors of a trained
    one
trivial_augment: fourteen operations on images, one per sample of a batch
augment_kernel: all of a sample's augmentation at once, in Triton
"""
