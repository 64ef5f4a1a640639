"""One training: data, networks, recipes and the plain loop. It knows methods, but not the paper.

How a sample travels: `load.load` reads a data set whole, as uint8 images; `data.imbalance` keeps as
many of each class as a profile says, and `data.hold_out` sets some aside. From there on the
training split is the only source of counts. Before each epoch `epoch_plan.draw_plan` draws which
samples it has and how each is varied; `preprocess` makes a network's input of them; `train.fit`
learns from it and projects the head, as the method says. At the end `preprocess.snapshot` keeps the
head, the features and the labels: from then on nothing needs torch or a GPU.

Read in this order:

- load, cifar, image_folder: data sets by name or path
- downloads: where the official archives are
- data: data sets as arrays: made imbalanced, split, hashed
- recipe: optimizer, schedule and augmentation, from recipes.toml or a file
- recipe_loss: what a recipe changes about a method's loss
- cui2019, cao2019, source_methods: losses of two papers whose rows are reproduced
- nets: the networks, each a body and a head
- epoch_plan: the samples, crops and flips of an epoch, drawn before it begins
- preprocess: from stored images to the input of a network; features, snapshot and errors of a
  trained one
- trivial_augment: fourteen operations on images, one per sample of a batch
- augment_kernel: all of a sample's augmentation at once, in Triton
- stages: the parts of a training, each under one method and schedule
- train: the plain loop, on any device and any number of processes; weights averaged over the last
  epochs
- snapshot: a trained head with features and labels: what is kept of a training
- method_cards: the methods as text
- choices, progress: words that options accept; a bar for the epochs of a training

Everything random depends on (seed, epoch, step) alone, and published results depend on it bit for
bit: a change of the order in which something is drawn is a change of every number.
"""
