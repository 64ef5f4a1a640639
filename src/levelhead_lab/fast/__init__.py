"""Many trainings at once, on a GPU: networks stacked into one, captured as CUDA graphs.

fit_many: the fast engine, for many trainings at once
precision: what it rounds, and how
job: one training of the fast engine
pack: runs that take the same steps, as captured CUDA graphs
epoch_work: what is in these graphs: steps, losses, gradients, projections, the evaluation
batch_marks: how far an epoch is, told while it runs
net_rows: the parameters of several networks as matrices, and their means over the last epochs
stacked: several networks as one
conv_norm, kernels: convolution and batch norm of stacked networks, in Triton
cudnn: the convolutions of one wide network
"""
