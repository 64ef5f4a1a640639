"""Trainings kept in folders: begun, resumed, swept and evaluated.

- run: train the run of a spec, by the plain engine or the fast one
- packed: train many of them at once on one device, by the fast engine
- spec: everything that decides what a training computes, and its key
- run_folder: what can be read from a run's folder, without torch
- evaluate: a trained head before and after an adjustment, measured on the test set
- subject: the page of a run, or of its snapshot
- export: the trained network with its adjusted head, as .safetensors and .onnx
- sweep: many specs, or a grid of them, each trained once
- train_command: the body of `levelhead train`
- session: one training: its folder is checked, its log and result are written
- lock: one process at a time, on every system
- checkpoint: the state of a training as checksummed files
- track: records of epochs sent to TensorBoard or MLflow
- workers: tasks done by this process, local processes or a Ray cluster
- signals: stopping by Ctrl-C or SIGTERM
"""
