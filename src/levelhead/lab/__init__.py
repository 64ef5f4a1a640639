"""One training: data, networks, recipes, the plain loop and the fast engine. It knows methods, but not the paper.

load, cifar, image_folder: data sets by name or path
data: data sets as arrays: made imbalanced, split, hashed
recipe: optimizer, schedule and augmentation, from recipes.toml or a file
nets: the networks, each a body and a head
average: weights averaged over the last epochs
train: the plain loop, on any device and any number of processes
features: features, snapshot and errors of a trained network
epoch_plan: the samples, crops and flips of an epoch, drawn before it begins
preprocess: from stored images to the input of a network
trivial_augment: fourteen operations on images, one per sample of a batch
augment_kernel: all of a sample's augmentation at once, in Triton
fit_many: the fast engine, for many trainings at once
job: one training of the fast engine
precision: what the fast engine rounds, and how
pack: runs that take the same steps, as captured CUDA graphs
batch_marks: how many batches of an epoch are done
net_rows: the parameters of several networks as matrices
stacked: several networks as one
conv_norm, kernels: convolution and batch norm of stacked networks, in Triton
"""
