"""Many trainings at once, on a GPU: networks stacked into one, captured as CUDA graphs.

fit_many: the fast engine, for many trainings at once
precision: what it rounds, and how
job: one training of the fast engine
pack: runs that take the same steps, as captured CUDA graphs
batch_marks: how many batches of an epoch are done
row_means: weights of packed networks averaged over the last epochs
net_rows: the parameters of several networks as matrices
stacked: several networks as one
conv_norm, kernels: convolution and batch norm of stacked networks, in Triton
"""
