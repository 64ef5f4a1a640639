"""Several labels per sample, each with its own threshold.

check: scores, labels, costs, floors and counts, each for several labels
cuts: every threshold of one label, and the best of them
tune_labels: the choice, and what it is worth
"""
