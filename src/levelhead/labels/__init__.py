"""Several labels per sample, each with its own shift.

- tune_labels: the choice, and what was chosen
- label_inputs, cuts: their inputs; every threshold of a label, and what is minimized
"""
