"""A choice applied to a head in memory: the rule that was tuned, with its strength and counts."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from ..choice.tuned import Tuned
from ..choice.tuned_json import Choice, choice_of
from ..core.head import Head, check_finite
from ..rules.rule import RULES, Strengths


def adjust(head: Head, tuned: Tuned | str | Path) -> Head:
    """Adjust a head by what was tuned: its rule, at its strength, with the counts that it was chosen with.

    =================  ================================================
    ``rescale``        ``w_i, b_i <- (n_1 / n_i)^gamma (w_i, b_i)``
    ``tau``            ``w_i, b_i <- (w_i, b_i) / ||w_i||^gamma``
    ``shift``          ``b_i <- b_i + gamma log(n_1 / n_i)``
    ``rescale+shift``  ``w_i, b_i <- scale_i (w_i, b_i) + (0, offset_i)``
    ``vector``         the same, with a scale and an offset of its own for each class
    =================  ================================================

    It does so also where the gain is uncertain; `tuned.worthwhile` says whether it is not.

    Args:
        head: weight [K, d] and, where there is one, bias [K]; or [1, d] where two classes share one logit, which only
            `shift` can adjust, by ``gamma log(n_0 / n_1)``.
        tuned: what `tune`, `cross_fit` or `match_prior` returned, or the path of a file that `levelhead tune` wrote.

    Returns:
        A new head, with a bias unless the rule only scales.

    >>> import numpy as np
    >>> from levelhead import match_prior
    >>> logits = np.array([[4.0, 2.0], [4.0, 1.0], [4.0, 3.0], [4.0, 1.5]])
    >>> tuned = match_prior(logits, [400, 100], rule="shift", range=(0, 3), bootstrap=0)
    >>> adjust(Head(np.eye(2)), tuned).logits(logits).argmax(axis=1)  # the identity: logits in, logits out
    array([1, 0, 1, 0])
    """
    choice = choice_of(tuned)
    return apply_choice(head, choice, choice.counts_for(check_finite(head).classes, head.names, "the head"))


def apply_choice(head: Head, choice: Choice, counts: np.ndarray) -> Head:
    """Return a head adjusted by a choice, with its counts [K], once both are checked."""
    chosen = Strengths(choice.gamma, scale=choice.scale, offset=choice.offset)
    return replace(RULES[choice.rule].amounts(head, counts, chosen), bias=choice.bias or "scale").head(head)
