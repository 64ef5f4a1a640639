"""Many trainings at once, on a GPU: networks stacked into one, captured as CUDA graphs.

It computes what `lab.train` does, from the same plans, losses and projections, and is tested
against it; only what is needed for speed is here. From the outside in:

- fit_many: the fast engine, for many trainings at once: which run together, and when
- job: one training of the fast engine
- precision: what it rounds, and how
- pack: runs that take the same steps, as captured CUDA graphs
- pending_epoch: an epoch while it is queued, and what became of it in each run
- batch_marks: how far an epoch is, told while it runs
- epoch_work: what is in these graphs: steps, losses, gradients, projections, the evaluation
- net_rows: the parameters of several networks as matrices, and their means over the last epochs
- stacked: several networks as one
- conv_norm, kernels: convolution and batch norm of stacked networks, in Triton
- cudnn: the convolutions of one wide network

The last three need CUDA and Triton. All others run on a CPU too, in float64 if asked, which is how
they are tested; `tests/fast/check_kernels.py` compares the kernels with torch, where there is a
GPU.
"""
