"""RS, re-scaling: after any training, each weight vector is scaled by how rare its class is.

Changes: adjust. `NAME+rs` is any method NAME with RS after it; the training is NAME's own.
Formula: ``w_i <- (n_1 / n_i)^gamma w_i``, where n_1 is the largest count.
Knobs: gamma, chosen on held-out data or, without labels, by matching the prior. The paper gives 0.1
    for Tiny ImageNet and none for CIFAR.
Caveats: scaling pushes a class whose logit is negative down, not up; it never changes the
    prediction of a two-class head with logits (-z, z); probabilities are no longer calibrated.
Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020, equation of
    weight scaling.
"""

from dataclasses import replace

import numpy as np

from levelhead.core.counts import resolve
from levelhead.core.head import Head
from levelhead.core.rules import Rescale
from levelhead.support.errors import LevelheadError

from .method import Method


def rescale_head(head: Head, counts: np.ndarray, gamma: float) -> Head:
    """Scale weight vectors by (n_1 / n_i)^gamma.

    Args:
        head: weight [K, d]; a bias [K] is scaled with its weight vector.
        counts: training samples of each class, in any order; n_1 is the largest.
        gamma: strength; 0 changes nothing.

    >>> rescale_head(Head(np.eye(2)), np.array([100, 25]), 0.5).norms
    array([1., 2.])
    """
    checked = resolve(counts, head.classes, names=head.names)
    return Rescale(gamma).on_head(head, checked).head(head)


def plus_rs(method: Method) -> Method:
    """Return `NAME+rs`: the training of a method NAME, and RS after it.

    Both share one training, which `trained_as` says. The card is that of NAME and then that of RS.

    Raises:
        LevelheadError: if NAME adjusts the head after training already, as tau-norm does: which of
            two adjustments a strength belongs to would be unclear.

    >>> from levelhead_lab.methods import METHODS
    >>> plus_rs(METHODS["focal"]).name, plus_rs(METHODS["focal"]).trained_as
    ('focal+rs', 'focal')
    """
    if method.adjust is not None:
        raise LevelheadError(
            f"{method.name} already adjusts the head after training; RS cannot follow"
        )
    card = "\n\n".join(part.strip() for part in (method.card, __doc__) if part)
    name = f"{method.name}+rs"
    title = f"{method.title}+RS"
    return replace(
        method, name=name, title=title, adjust=rescale_head, trained_as=method.name, card=card
    )
