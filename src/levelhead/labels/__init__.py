"""Several labels per sample, each with its own threshold.

Classes compete for a sample, and an offset for one takes samples from others. Labels do not: each is predicted
where its own logit is above 0, so each is a choice of one number by itself, and all choices are exact. A choice
is an `Adjustment` of offsets and comes back as a `Tuned`, like that of classes, so that heads, files, hosts and
the page take it as they take any other.

The road: `tune_labels` checks what it is given (check), tries every threshold of every label (cuts), and judges
what comes of them on samples that had no part in it (judge).

check: scores, labels, the goal and counts, each for several labels
cuts: every threshold of one label, and the best of them
judge: what decisions on labels are worth
tune_labels: the choice
"""
