"""The data of the page's script, for JSON."""

from typing import Any

import numpy as np

from ..core.curve import Curve
from ..rules.rule import RULES
from .calibration import calibration
from .encode_changes import encode_changes, gamma_stops
from .rule_view import RuleView, rule_title
from .subject import Subject
from .use_it import code_at_gamma

MAX_LINES = 12  # classes whose norms are drawn over the epochs


def page_data(subject: Subject) -> dict[str, Any]:
    """Return all of it; `path` is the chosen rule, None without logits, and `others` are the other rules."""
    choice, path, head, target = subject.choice, subject.path, subject.head, subject.target
    shown = None
    if path is not None and subject.logits is not None and subject.views[0].gamma is not None:
        shown = calibration(
            subject.views[0],
            subject.logits,
            held_out=subject.held_out,
            temperature=choice.get("temperature"),
            kind=subject.kind,
        )
    names = None if subject.names is None else [str(name) for name in subject.names]
    return {
        "title": subject.title,
        "classes": subject.classes,
        "names": names,
        "counts": subject.counts.tolist(),
        "groups": subject.groups,
        "gamma": subject.gamma,
        "chosen_on": choice["chosen_on"],
        "labelled": path is not None,
        "mass": None if target is None else subject.mass.tolist(),
        "target": None if target is None else target.tolist(),
        "path": _rule_data(subject, subject.views[0]) if subject.views else None,
        "others": [_rule_data(subject, view) for view in subject.views[1:]],
        "drawn": [_drawn(rule, curve) for rule, curve in subject.drawn.items()],
        "calibration": shown,
        "norms": None if head is None else _six_digits(head.norms),
        "log": _norms_over_epochs(subject),
    }


def _rule_data(subject: Subject, view: RuleView) -> dict[str, Any]:
    """Return one rule: every change of a prediction, and the strengths that the slider can stop at besides its grid."""
    labels = np.zeros(len(view.changes.start), np.int64) if view.path is None else view.path.labels
    best = None if view.path is None and view.gamma is not None else view.best
    special = tuple(value for value in (view.gamma, best) if value is not None)
    encoded = encode_changes(
        view.changes, labels, 1 if view.path is None else subject.classes, gamma_stops(view.end, special, view.step)
    )
    return {
        "rule": view.rule,
        "title": view.title,
        "share": not RULES[view.rule].has_path,
        "gamma": view.gamma,
        "interval": view.interval,
        "end": view.end,
        "step": view.step,
        "special": special,
        "best": best,
        **encoded,
        "code": code_at_gamma(subject, view.rule) if RULES[view.rule].code() and not subject.fitted else None,
    }


def _drawn(rule: str, curve: Curve) -> dict[str, Any]:
    return {
        "title": rule_title(rule),
        "gammas": [*_six_digits(curve.gammas), curve.end],
        "values": _six_digits(100 * np.append(curve.values, curve.values[-1])),
    }


def _norms_over_epochs(subject: Subject) -> dict[str, Any] | None:
    """Return the norms over the epochs of up to 12 classes, from the most frequent to the rarest."""
    log = [record for record in subject.log if record.get("norms") is not None and "epoch" in record]
    if len(log) < 2:
        return None
    order = np.argsort(-subject.counts, kind="stable")
    chosen = order[np.unique(np.linspace(0, len(order) - 1, min(MAX_LINES, len(order))).round().astype(int))]
    norms = np.array([record["norms"] for record in log], np.float64)
    return {
        "epochs": [record["epoch"] for record in log],
        "classes": chosen.tolist(),
        "norms": [_six_digits(norms[:, i]) for i in chosen],
    }


def _six_digits(values: Any) -> list[float]:
    return [float(f"{x:.6g}") for x in np.asarray(values, np.float64)]
