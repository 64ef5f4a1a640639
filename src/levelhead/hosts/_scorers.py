"""Which of scikit-learn's scorers are metrics of the exact path."""

from typing import Any

import numpy as np

from ..core.choices import Metric
from ..core.curve import metric_name

_MACRO: dict[str, tuple | None] = {
    "average": ("macro",),
    "pos_label": None,
    "zero_division": ("warn", 0),
}  # None: any value, it is not used
_BALANCED: dict[str, tuple | None] = {"adjusted": (False,)}
_FUNCTIONS: dict[tuple[str, str], tuple[str, dict[str, tuple | None]]] = {  # what `metric_name` knows, and its settings
    ("sklearn", "accuracy_score"): ("accuracy", {"normalize": (True,)}),
    ("sklearn", "balanced_accuracy_score"): ("balanced_accuracy", _BALANCED),
    ("sklearn", "recall_score"): ("recall_macro", _MACRO),
    ("sklearn", "f1_score"): ("f1_macro", _MACRO),
    ("sklearn", "matthews_corrcoef"): ("matthews_corrcoef", {}),
    ("sklearn", "cohen_kappa_score"): ("cohen_kappa", {"weights": (None,), "labels": (None,)}),
    ("imblearn", "geometric_mean_score"): ("geometric_mean", {"average": ("multiclass",), "correction": (0, 0.0)}),
}


def exact_metric(scorer: Any, held_out: np.ndarray, classes: int) -> Metric | None:
    """Return the metric of the exact path that a scorer computes, or None if it is another or has other settings.

    Args:
        scorer: as `sklearn.metrics.check_scoring` returns it.
        held_out: labels of the held-out samples, of all folds.
        classes: K. If a class has no held-out sample, scikit-learn's means over classes depend on whether it is
            predicted; then only metrics that do not are exact.

    >>> from sklearn.metrics import get_scorer
    >>> [exact_metric(get_scorer(name), np.arange(3), 3) for name in ("f1_macro", "f1_weighted", "accuracy")]
    ['macro_f1', None, 'error']
    """
    function, given = getattr(scorer, "_score_func", None), getattr(scorer, "_kwargs", {})
    package = str(getattr(function, "__module__", "")).partition(".")[0]
    called, allowed = _FUNCTIONS.get((package, getattr(function, "__name__", "")), (None, {}))
    if called is None or getattr(scorer, "_sign", 0) != 1 or getattr(scorer, "_response_method", "") != "predict":
        return None
    if allowed is _MACRO and given.get("average") != "macro":
        return None
    for name, value in given.items():
        values = allowed.get(name, ())
        if values is not None and not any(
            value is one or (type(value) is type(one) and value == one) for one in values
        ):
            return None
    metric = metric_name(called)
    whole = len(np.unique(held_out)) == classes
    alone = metric in ("error", "mcc", "kappa") or allowed is _BALANCED
    return metric if whole or alone else None


def scorer_name(scoring: Any) -> str:
    """Return the name of a scorer, for people.

    >>> from sklearn.metrics import f1_score, make_scorer
    >>> scorer_name("accuracy"), scorer_name(make_scorer(f1_score))
    ('accuracy', 'f1_score')
    """
    function = getattr(scoring, "_score_func", scoring)
    return scoring if isinstance(scoring, str) else getattr(function, "__name__", type(scoring).__name__)
