"""Sentences and tables about an `Evidence`, for `Tuned.facts` and `Tuned.summary`.

A function that ends in `_text` returns one sentence, or "" where there is nothing to say. One that ends
in `_lines` returns lines of a table in plain text.

`facts_of` collects the sentences for `Tuned.facts`, which the terminal, notebooks and the page print; the two
tables are for `Tuned.summary`. The words are here, and in no other place, so that a result is told alike
everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..support.terminal import padded
from .class_names import listed
from .class_names import title as class_title
from .evidence import Evidence
from .metrics import Tables, find_metric

MOST_ROWS = 30  # classes that a table shows
_PRICE = "macro_f1"  # the metric that weighs precision as much as recall
_FEW = 300  # samples below which choices for macro-F1 often lose (docs/decisions.md)
_OVERALL = ("accuracy", "balanced_accuracy", "macro_f1")  # that every summary shows


def facts_of(evidence: Evidence, names: Sequence[str] | None) -> dict[str, str]:
    """Return what there is to say of it: {`gain`, `price`, `never right`, `few samples`: sentence}.

    Only what there is to say has a key; the gain always has one.

    Args:
        evidence: what to tell about.
        names: of the classes, where they are known.
    """
    facts = {
        "gain": f"{evidence.change_text()}: {evidence.verdict_text()}",
        "price": price_text(evidence),
        "never right": never_right_text(evidence, names),
        "few samples": few_text(evidence),
    }
    return {about: sentence for about, sentence in facts.items() if sentence}


def price_text(evidence: Evidence) -> str:
    """Return what accuracy the gain costs, where that is more than it brings.

    Whoever raises the recalls of rare classes pays with some of the frequent ones. That is said only
    of metrics in points, which accuracy can be compared with, and not of those that count samples as
    they come, as accuracy itself does.
    """
    metric = evidence.metric
    if not metric.in_points or metric.as_they_come or evidence.changed == 0:
        return ""
    # Of several labels, the mean over them.
    fall = float(np.mean(evidence.before.accuracy - evidence.after.accuracy))
    if fall <= max(evidence.gain, 0.0):
        return ""
    price = f"accuracy falls by {100 * fall:.1f} points"
    if evidence.gain < 0:  # both fall, as a floor may have it: there is nothing to weigh
        return f"{price}, too"
    price = f"{price}, more than that gain"
    # A metric that goes by precisions as well has weighed them already.
    if not metric.of_recalls:
        return f"{price}: the metric error would avoid it"
    return f"{price}: the metric {_PRICE} weighs both"


def never_right_text(evidence: Evidence, names: Sequence[str] | None) -> str:
    """Return which classes are never right, before or after.

    Why is not known: of a class with three samples, all may be wrong by chance.
    """
    never = evidence.never_right.tolist()
    if not never:
        return ""
    which = listed([class_title(k, names) for k in never])
    return f"never right, before or after: {which}; too few samples, or no signal in the scores"


def few_text(evidence: Evidence) -> str:
    """Return that a metric of precisions needs more samples than there are.

    Recalls are known from the samples of a class alone. F1, MCC and kappa depend on how many of all other
    samples are called by its name as well, which few samples tell badly.
    """
    if evidence.n >= _FEW or evidence.changed == 0:
        return ""
    if evidence.metric.of_recalls or evidence.metric.as_they_come:
        return ""
    # How many lose was measured for macro-F1 alone.
    few = f"{evidence.n} samples are few for {evidence.metric.title}"
    if evidence.metric.name == _PRICE:
        few = f"up to a third of choices for {evidence.metric.title} on so few samples lose"
    return f"{few}; hold out {_FEW} or more"


def target_text(target: Sequence[float], names: Sequence[str] | None) -> str:
    """Return that accuracy, precisions and shares are in the mix of a target, [K], and which that is."""
    if _is_even(target):
        return "classes weigh alike, as the target says"
    return f"classes weigh as the target says: {mix_text(target, names)}"


def mix_text(shares: Sequence[float], names: Sequence[str] | None) -> str:
    """Return in words how often classes occur, [K]."""
    if _is_even(shares):
        return "all classes equally often"
    return listed([f"{class_title(k, names)} {share:.1%}" for k, share in enumerate(shares)])


def _is_even(shares: Sequence[float]) -> bool:
    return bool(np.ptp(shares) <= 1e-9)


def overall_lines(evidence: Evidence) -> list[str]:
    """Return a line for each overall measure, before and after, whatever metric was chosen for.

    Accuracy, balanced accuracy and macro-F1: who gains in one of them mostly pays in another.
    """
    lines = []
    for name in _OVERALL:
        metric = find_metric(name)
        if evidence.multilabel:
            metric = metric.for_labels()
        # The same tables, asked for another metric.
        shown = replace(evidence, metric=metric)
        before = shown.value_before
        after = shown.value
        # `accuracy` is another name for the metric `error`: it is shown as its complement.
        if metric.is_loss:
            before = 1 - before
            after = 1 - after
        lines.append(f"{name.replace('_', ' '):20}{before:8.1%} -> {after:6.1%}")
    return lines


def class_lines(evidence: Evidence, names: Sequence[str] | None) -> list[str]:
    """Return a line for each class: recall, precision and predicted share, before and after.

    Of many classes, those whose recall changes most are shown, in the order of the classes.
    """
    before, after = evidence.class_tables
    share_before = _predicted_share(evidence.before)
    share_after = _predicted_share(evidence.after)

    # A class without samples has no recall (NaN): it is shown last of all.
    change = np.nan_to_num(np.abs(after.recall - before.recall), nan=-1.0)
    shown = np.sort(np.argsort(-change, kind="stable")[:MOST_ROWS]).tolist()

    # Columns of fixed width, but for the names: the widest of those that are shown.
    head, *titles = padded(["class", *(class_title(k, names) for k in shown)])
    lines = [f"{head}  {'recall':>16}  {'precision':>16}  {'predicted share':>16}"]
    for k, shown_title in zip(shown, titles, strict=True):
        cells = [
            shown_title,
            _arrow(before.recall, after.recall, k),
            _arrow(before.precision, after.precision, k),
            _arrow(share_before, share_after, k),
        ]
        if before.sizes[k] > 0 and before.recall[k] == 0 and after.recall[k] == 0:
            cells.append("(never right)")
        lines.append("  ".join(cells))
    if len(change) > MOST_ROWS:
        lines.append(f"and {len(change) - MOST_ROWS} classes that change less")
    return lines


def _predicted_share(tables: Tables) -> np.ndarray:
    """Return the share of the samples that is predicted to have each class or label, [K]."""
    if tables.sizes.ndim > 1:
        return tables.share[:, 1]
    return tables.share


def _arrow(before: np.ndarray, after: np.ndarray, k: int) -> str:
    """Return the share of class k before and after, in 16 characters.

    >>> _arrow(np.array([0.5, np.nan]), np.array([1.0, 0.25]), 0)
    ' 50.0% -> 100.0%'
    >>> _arrow(np.array([0.5, np.nan]), np.array([1.0, 0.25]), 1)
    '     - ->  25.0%'
    """
    return f"{_percentage(before[k]):>6} -> {_percentage(after[k]):>6}"


def _percentage(share: np.floating) -> str:
    """Return a share in percent; - for one that is not known."""
    if np.isnan(share):
        return "-"
    return f"{share:.1%}"
