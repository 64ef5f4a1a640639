"""Several labels per sample, each with its own threshold.

check: scores, labels, costs, floors and counts, each for several labels
cuts: every threshold of one label, and the best of them
judge: what decisions on labels are worth
tune_labels: the choice
"""
