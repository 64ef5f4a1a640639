"""The exact path over one strength: every change of every prediction. Pure numerics.

direction: how scores depend on one strength, and where two of them cross
curve: step functions of a strength
envelope: what is predicted at the start of a range, and every change of it
winners: who wins at one strength
reach: the few classes of a row that can win at all
walk: from one change to the next, on the host
walk_torch, walk_triton: the same on a GPU
engines: the one of these that fits the logits
"""
