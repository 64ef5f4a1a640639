"""Several labels per sample, each with its own shift.

- tune_labels: the choice; tuned_labels: what was chosen
- label_inputs, cuts, label_objective: their inputs, every threshold of a label, what is minimized
"""
