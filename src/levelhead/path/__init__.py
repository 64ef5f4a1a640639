"""The exact path over one strength: every change of every prediction. Pure numerics.

A rule of one strength makes scores ``l_k r_k^gamma`` or ``l_k + gamma log r_k`` of logits [N, K]. A grid of
gammas would miss changes between its points, and choose by where these happen to lie. Here every gamma at
which any of the N predictions changes is found, so that errors over gamma are known as step functions, and
each step is exact.

The road: `engines.find_changes` takes logits and a `Direction`, and returns an `Envelope`: who is predicted at
the start of the range, [N], and the changes (sample, gamma, new class, old class), ascending by gamma. On the
host that is `walk.compute_envelope`, on a GPU `walk_torch.walk_on_device`; both do the same three steps, who
wins at both ends (winners), which lines can matter between them (reach), and the walk from bend to bend (walk).
Whoever has an envelope adds its changes up to a `Curve`, and chooses on that.

Labels, counts, rules and metrics are not known here: core/ has them. Read in this order:

direction: how scores depend on one strength, and where two of them cross
curve: step functions of a strength
envelope: what is predicted at the start of a range, and every change of it
winners: who wins at one strength
reach: the few classes of a row that can win at all
walk: from one change to the next, on the host
walk_torch, walk_triton: the same on a GPU
engines: the one of these that fits the logits
"""
