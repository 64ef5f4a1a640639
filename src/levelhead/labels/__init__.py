"""Several labels per sample, each with its own shift.

- tune_labels: the choice, what was chosen, and checks of what it is made on
- cuts: every threshold of a label, and what is minimized
"""
