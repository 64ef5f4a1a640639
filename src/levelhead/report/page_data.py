"""What the page's script needs of a subject, as JSON-able facts."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from ..gamma.criterion import middle
from .calibration import calibration
from .encode_changes import pack, stops
from .subject import Subject

LINES = 12  # norms over epochs: of at most so many classes


def facts(subject: Subject) -> dict[str, Any]:
    """All of it; `path` is None where there are no logits, `labelled` tells whether their labels are known."""
    choice, path, head = subject.choice, subject.path, subject.head
    scaled = head is not None and choice["rule"] != "shift"  # a shift leaves the norms alone
    return {
        "title": subject.title,
        "classes": subject.classes,
        "names": None if subject.names is None else [str(name) for name in subject.names],
        "counts": subject.counts.tolist(),
        "groups": subject.groups,
        "gamma": subject.gamma,
        "interval": choice.get("interval"),
        "rule": choice["rule"],
        "chosen_on": choice["chosen_on"],
        "labelled": path is not None,
        "mass": None if subject.target is None else subject.mass.tolist(),
        "target": None if subject.target is None else subject.target.tolist(),
        "path": _path(subject),
        "calibration": None if path is None or subject.logits is None else
        calibration(path, subject.logits, subject.gamma, held_out=subject.held_out),
        "norms": _short(head.norms) if head is not None and scaled else None,
        "log": _norms_over_epochs(subject),
        "code": code(subject),
    }


def code(subject: Subject) -> dict[str, str]:
    """What to copy: a command for a model's file, code for one at hand. {gamma} stands where the page's goes."""
    rule = subject.choice["rule"]
    counts = json.dumps(subject.counts.tolist()) if subject.classes <= 20 else "[...]  # training samples of each class"
    extra = "" if rule == "rescale" else f" --rule {rule}"
    leveled = Path(subject.model).with_name(f"rescaled{Path(subject.model).suffix}").as_posix()
    model, leveled = shlex.quote(subject.model), shlex.quote(leveled)
    python = {"rescale": "adjusted = lh.rescale_(model, counts, gamma={gamma})    # adjusted.restore() undoes it",
              "tau": "head = lh.tau_normalize(head, {gamma})    # head = lh.Head(weight, bias)",
              "shift": "head = lh.shift_logits(head, counts, {gamma})    # head = lh.Head(weight, bias)"}[rule]
    return {"command": f"levelhead rescale {model} --counts counts.json --gamma {{gamma}}{extra} -o {leveled}",
            "python": f"import levelhead as lh\n\ncounts = {counts}\n{python}"}


def _path(subject: Subject) -> dict[str, Any] | None:
    """Every change of every prediction, and the gammas that the page can stand on beside its grid."""
    if subject.changes is None or subject.curve is None:
        return None
    low, high = subject.curve.plateau()
    best = None if subject.path is None else middle((low, high))
    special = tuple(gamma for gamma in (subject.gamma, best) if gamma is not None)
    labels = np.zeros(len(subject.changes.start), np.int64) if subject.path is None else subject.path.labels
    packed = pack(subject.changes, labels, 1 if subject.path is None else subject.classes, stops(subject.end, special))
    return {"end": subject.end, "special": special, "best": best, **packed}


def _norms_over_epochs(subject: Subject) -> dict[str, Any] | None:
    """Norms of up to 12 classes, spread evenly from the most frequent to the rarest, over the epochs of the log."""
    log = [record for record in subject.log if record.get("norms") is not None and "epoch" in record]
    if len(log) < 2:
        return None
    order = np.argsort(-subject.counts, kind="stable")
    chosen = order[np.unique(np.linspace(0, len(order) - 1, min(LINES, len(order))).round().astype(int))]
    norms = np.array([record["norms"] for record in log], np.float64)
    return {"epochs": [record["epoch"] for record in log], "classes": chosen.tolist(),
            "norms": [_short(norms[:, i]) for i in chosen]}


def _short(values: Any) -> list[float]:
    return [float(f"{x:.6g}") for x in np.asarray(values, np.float64)]
