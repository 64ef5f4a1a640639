"""Trainings kept in folders: begun, resumed, swept and evaluated.

A spec names a training, its run is the folder that keeps it, and a session writes it. Read in this
order:

- spec: everything that decides what a training computes, and its key
- run_folder: what can be read from a run's folder, without torch
- session: one training: its folder is checked, its log and result are written
- checkpoint: the state of a training as checksummed files
- lock: one process at a time, on every system
- run: train the run of a spec, by the plain engine or the fast one
- packed: train many of them at once on one device, by the fast engine
- evaluate: a trained head before and after an adjustment, measured on the test set
- subject: the page of a run, or of its snapshot
- export: the trained network with its adjusted head, as .safetensors and .onnx
- train_command: the body of `levelhead train`
- sweep: many specs, or a grid of them, each trained once
- workers: tasks done by this process, local processes or a Ray cluster
- signals: stopping by Ctrl-C or SIGTERM
- track: records of epochs sent to TensorBoard, MLflow or Weights & Biases

How a network is trained is told in `lab` (the plain loop) and `fast` (many at once): here is only
what lasts.
"""
