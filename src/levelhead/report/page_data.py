"""The data of the page's script, for JSON."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from .calibration import calibration
from .encode_changes import encode_changes, gamma_stops
from .subject import Subject

MAX_LINES = 12  # classes whose norms are drawn over the epochs


def page_data(subject: Subject) -> dict[str, Any]:
    """Return all of it; `path` is None without logits, and `labelled` says whether their labels are known."""
    choice, path, head, target = subject.choice, subject.path, subject.head, subject.target
    shown = (
        None
        if path is None or subject.logits is None
        else calibration(path, subject.logits, subject.gamma, held_out=subject.held_out)
    )
    names = None if subject.names is None else [str(name) for name in subject.names]
    norms = None if head is None or choice["rule"] == "shift" else _six_digits(head.norms)  # a shift leaves them alone
    return {
        "title": subject.title,
        "classes": subject.classes,
        "names": names,
        "counts": subject.counts.tolist(),
        "groups": subject.groups,
        "gamma": subject.gamma,
        "interval": choice.get("interval"),
        "rule": choice["rule"],
        "chosen_on": choice["chosen_on"],
        "labelled": path is not None,
        "mass": None if target is None else subject.mass.tolist(),
        "target": None if target is None else target.tolist(),
        "path": _encoded_path(subject),
        "calibration": shown,
        "norms": norms,
        "log": _norms_over_epochs(subject),
        "code": code_to_copy(subject),
    }


def code_to_copy(subject: Subject) -> dict[str, str]:
    """Return the command for a model's file and the code for one in memory: they apply the choice that was tuned, or
    else, with {gamma} in its place, the gamma shown."""
    rule, tuned = subject.choice["rule"], subject.choice["chosen_on"] != "given"
    counts = json.dumps(subject.counts.tolist()) if subject.classes <= 20 else "[...]  # training samples of each class"
    extra = "" if rule == "rescale" else f" --rule {rule}"
    model = shlex.quote(subject.model)  # a run's folder has a leveled.safetensors already
    leveled = shlex.quote(Path(subject.model).with_name(f"adjusted{Path(subject.model).suffix}").as_posix())
    python = {
        "rescale": "adjusted = lh.rescale_(model, counts, gamma={gamma})    # adjusted.restore() undoes it",
        "tau": "head = lh.tau_normalize(head, {gamma})    # head = lh.Head(weight, bias)",
        "shift": "head = lh.shift_logits(head, counts, {gamma})    # head = lh.Head(weight, bias)",
    }[rule]
    command = f"levelhead rescale {model} --counts counts.json --gamma {{gamma}}{extra} -o {leveled}"
    code = f"counts = {counts}\n{python}"
    if tuned:  # what was tuned comes first; the gamma shown may be another one
        commented = "\n".join(f"# {line}" for line in code.splitlines())
        call = "match_prior(logits, counts" if subject.path is None else "tune(logits, labels, counts"
        choose = "" if subject.tuned_file else f'tuned = lh.{call}, rule="{rule}")    # on the samples of this page\n'
        what = json.dumps(subject.tuned_file) if subject.tuned_file else "tuned"
        code = (
            f"{'' if subject.tuned_file else f'counts = {counts}{chr(10)}'}{choose}"
            f"adjusted = lh.adjust_(model, {what})    # adjusted.restore() undoes it\n"
            f"# or, at the gamma shown:\n{commented}"
        )
    if subject.tuned_file:
        apply = f"levelhead adjust {model} --tuned {shlex.quote(subject.tuned_file)} -o {leveled}"
        command = f"{apply}\n# or, at the gamma shown:\n# {command}"
    return {"command": command, "python": f"import levelhead as lh\n\n{code}"}


def _encoded_path(subject: Subject) -> dict[str, Any] | None:
    """Return every change of a prediction, and the gammas that the slider can stop at besides its grid."""
    if subject.changes is None or subject.curve is None:
        return None
    if subject.path is None:
        best, labels, classes = None, np.zeros(len(subject.changes.start), np.int64), 1
    else:
        best, labels, classes = subject.curve.middle(subject.curve.plateau()), subject.path.labels, subject.classes
    special = (subject.gamma,) if best is None else (subject.gamma, best)
    encoded = encode_changes(subject.changes, labels, classes, gamma_stops(subject.end, special))
    return {"end": subject.end, "special": special, "best": best, **encoded}


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
