"""The data of the page's script, for JSON, and its table of the rules that were tried.

Every change of every prediction is kept, small enough for a page and exact wherever the page can stop. The slider stops
at each 0.0001 from 0 to its end (finer or coarser on other scales of scores), and at a few other gammas (the chosen
one). A change is filed under the first stop that is not below its gamma, compared in float64. So at each stop every
prediction is the one that `GammaPath.predictions` returns, and nothing finer needs to be kept.
"""

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.curve import Curve
from ..path.envelope import Envelope
from ..path.metrics import TITLES, gain_text, value_form
from ..rules.rule import RULES, Unchanged
from .calibration import calibration
from .subject import RuleView, Subject, rule_title

AS_TRAINED = Unchanged.name
STEP = 10_000  # stops of the slider per unit of gamma
MAX_LINES = 12  # classes whose norms are drawn over the epochs


def page_data(subject: Subject, codes: Mapping[str, dict[str, str]]) -> dict[str, Any]:
    """Return all of it; `path` is the chosen rule, None without logits, and `others` are the other rules.

    `codes` has what `code_at_gamma` returns, for each rule that has it.
    """
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
        "path": _rule_data(subject, subject.views[0], codes) if subject.views else None,
        "others": [_rule_data(subject, view, codes) for view in subject.views[1:]],
        "drawn": [_drawn(rule, curve) for rule, curve in subject.drawn.items()],
        "calibration": shown,
        "norms": None if head is None else _six_digits(head.norms),
        "log": _norms_over_epochs(subject),
    }


def _rule_data(subject: Subject, view: RuleView, codes: Mapping[str, dict[str, str]]) -> dict[str, Any]:
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
        "code": codes.get(view.rule),
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


def gamma_stops(end: float, special: tuple[float, ...] = (), step: int = STEP) -> np.ndarray:
    """Return the gammas that the slider can stop at, ascending; the page's script divides in the same way."""
    return np.union1d(np.arange(round(end * step) + 1) / step, special)


def encode_changes(changes: Envelope, labels: np.ndarray, classes: int, stops: np.ndarray) -> dict[str, Any]:
    """Return the changes for JSON, samples sorted by true class, changes by stop and then by sample.

    Labels [N] are true classes, all 0 if they are not known; stops [S] the gammas that the slider can stop at. Returned
    are samples, the number of each true class; events, the number of changes; data, base64 of a zlib stream of the
    first predictions [N], the number of changes at each stop [S], the sample of each change [E] (within a stop, the
    difference to the one before), and its new class [E].
    """
    order = np.argsort(labels, kind="stable")
    rank = np.argsort(order)
    stop = np.searchsorted(stops, changes.gamma, side="left")
    sample, new_class = rank[changes.sample], changes.new_class
    by = np.lexsort((np.arange(len(stop)), sample, stop))  # a sample's own changes stay in order of gamma
    stop, sample, new_class = stop[by], sample[by], new_class[by]
    last = np.append((stop[1:] != stop[:-1]) | (sample[1:] != sample[:-1]), True)[: len(stop)] & (stop < len(stops))
    stop, sample, new_class = stop[last], sample[last], new_class[last]
    first = np.append(True, stop[1:] != stop[:-1])[: len(stop)]
    delta = np.where(first, sample, np.diff(sample, prepend=0))
    parts = (changes.start[order], np.bincount(stop, minlength=len(stops)), delta, new_class)
    # whole numbers below 2^32 as all lowest bytes, then all next ones: the high bytes are nearly all 0
    planes = b"".join(part.astype("<u4").view(np.uint8).reshape(-1, 4).T.tobytes() for part in parts)
    return {
        "samples": np.bincount(labels, minlength=classes).tolist(),
        "events": len(stop),
        "data": base64.b64encode(zlib.compress(planes)).decode("ascii"),
    }


@dataclass(frozen=True)
class RuleRow:
    """One rule: its strength, the metric on samples that it was not fitted on, the gain, and whether it was chosen."""

    title: str
    strength: str
    value: str
    gain: str
    chosen: bool


@dataclass(frozen=True)
class RuleTable:
    """The rules that were tried: the title of their metric, a row each, and why one was chosen."""

    metric: str
    rows: tuple[RuleRow, ...]
    why: str


def rule_table(subject: Subject) -> RuleTable | None:
    """Return the rules that were tried; None if only one was."""
    choice, candidates = subject.choice, subject.choice.get("candidates") or ()
    if len(candidates) < 3:
        return None
    metric = choice.get("metric") or "balanced_error"
    why = str(choice.get("why") or "")
    still = why.startswith("the model as it is")
    rows = []
    for one in candidates:
        rule, second, between = one["rule"], one.get("second"), one.get("interval")
        then = "" if second is None else f", then {round(second, 3) + 0.0:.3f}"
        strength = (
            "" if rule == AS_TRAINED else f"{one['gamma']:.3f}{then}" if RULES[rule].strengths else "a number per class"
        )
        gain = "" if rule == AS_TRAINED else gain_text(metric, one["gain"], None if between is None else tuple(between))
        rows.append(
            RuleRow(
                "As trained" if rule == AS_TRAINED else rule_title(rule),
                strength,
                format(one["value"], value_form(metric)),
                gain,
                rule == (AS_TRAINED if still else choice["rule"]),
            )
        )
    title = TITLES.get(metric, metric)
    why = f"{why[:1].upper()}{why[1:]}." if why else ""
    return RuleTable(f"{title[:1].upper()}{title[1:]}", tuple(rows), why)
