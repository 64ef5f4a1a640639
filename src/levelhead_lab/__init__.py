"""The study: trainings on imbalanced data, the reproduction of the paper, the demo. It stands on `levelhead`.

- methods: every method of Table 1 and its loss, and those users compare it with
- lab: one training: data, networks, recipes, the plain loop
- fast: many trainings at once, on a GPU
- runs: trainings kept in folders: started, resumed, swept, evaluated
- paper: the reproduction of Kim and Kim 2020
- cli, demo: the commands `train`, `evaluate`, `sweep`, `reproduce`, `methods` and `demo` of `levelhead`
"""
