"""The page: data as JSON, text by Jinja2 with autoescape; a strict Content-Security-Policy lets it load nothing.

Every change of every prediction is kept, exact wherever the slider can stop. A change is filed under the first stop
that is not below its gamma, in float64: every prediction there is the one that `GammaPath.predictions` returns.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform
import time
import zlib
from collections import namedtuple
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..choice.path_metrics import TITLES, gain_text, value_form
from ..core.measure import fit_temperature
from ..core.rules import RULES, Unchanged
from ..files.spans import json_of
from ..path.envelope import Envelope, read_chunks
from ..support import atomic
from ..support.errors import LevelheadError, reported_as
from .subject import LabelSubject, RuleView, Subject, rule_title
from .use_it import code_at_gamma, code_to_use, label_code
from .verdict import Number, label_verdict, percent_text, verdict

SCRIPTS = (
    "format",
    "engine",
    "chart",
    "curve",
    "classes",
    "confusion",
    "head",
    "calibration",
    "compare",
    "page",
)
BALANCED = (
    "balanced",
    "balanced_error",
)  # keys of that number, from the samples or from the choice alone
TOO_LARGE = "scores of this size have no probabilities to show; divide them by a number of their size, and tune again"
STEP = 10_000  # stops of the slider per unit of gamma
MAX_LINES = 12  # classes whose norms are drawn over the epochs
BINS = 15
_BLOCK = 1 << 17  # numbers worked on at a time, which fit in a cache
FITTED_NUMBERS = (
    500_000  # that a temperature is fitted on; more would not change a digit that is shown
)


@dataclass(frozen=True)
class PageTable:
    """A table to show as it is, such as one of the paper's. Cells are text; the first cell of a row is its title."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    @staticmethod
    def of_markdown(title: str, text: str, note: str = "") -> PageTable:
        """Return a table that is written in Markdown."""
        header, _, *rows = [
            [cell.replace("*", "").strip() for cell in line.strip("|").split("|")]
            for line in text.strip().splitlines()
        ]
        return PageTable(title, header, rows, note)


def is_records(path: str | Path) -> bool:
    """Return whether a path is a folder of the records that `levelhead reproduce` writes, one per network."""
    first = min(Path(path).glob("*.json"), default=None) if Path(path).is_dir() else None
    return first is not None and {"column", "method", "curve", "counts"} <= json_of(first).keys()


def write(
    out: str | Path,
    subjects: Sequence[Subject | LabelSubject],
    *,
    tables: Sequence[PageTable] = (),
    command: str = "",
) -> Path:
    """Write the page of one subject, or of several side by side, atomically, and return its path.

    Args:
        out: an .html file.
        subjects, tables: at least one of either; tables are shown below the subjects.
        command: the command that made the page, for its last lines.
    """
    path, subjects = Path(out), with_titles(subjects)
    if path.suffix.lower() not in (".html", ".htm"):
        raise LevelheadError(f"{path}: expected a page as .html, got {path.suffix or 'no suffix'}")
    if not subjects and not tables:
        raise LevelheadError("expected at least one subject or table, got none")
    atomic.write(path, render_page(subjects, tables=tables, command=command))
    return path


def with_titles(subjects: Sequence[Subject | LabelSubject]) -> list[Subject | LabelSubject]:
    """Return the subjects with titles that differ: runs of the same name get that of the folder they are in."""
    titles, found = [subject.title for subject in subjects], list(subjects)
    for i, (subject, title) in enumerate(zip(subjects, titles, strict=True)):
        if titles.count(title) > 1:
            place = next(
                (
                    subject.files[key]
                    for key in ("run", "snapshot", "logits")
                    if key in subject.files
                ),
                None,
            )
            above = Path(place).resolve().parent.name if place else ""
            found[i] = replace(subject, title=f"{above}/{title}" if above else f"{title}, {i + 1}")
    return found


def render_page(
    subjects: Sequence[Subject | LabelSubject],
    *,
    tables: Sequence[PageTable] = (),
    command: str = "",
) -> str:
    """Return the page as text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    words = Environment(
        loader=PackageLoader("levelhead.report", ""), autoescape=True, undefined=StrictUndefined
    )
    words.trim_blocks = words.lstrip_blocks = True
    words.filters |= {"percent": percent_text, "points": _signed_points}
    script = (
        '(() => {\n"use strict";\n'
        + "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
        + "\n})();\n"
    )
    scripts, styles = (
        [_asset("uPlot.iife.min.js"), script],
        [_asset("uPlot.min.css"), _asset("page.css")],
    )
    models = [subject for subject in subjects if isinstance(subject, Subject)]
    of_labels = [subject for subject in subjects if isinstance(subject, LabelSubject)]
    shown = [_shown(i, subject) for i, subject in enumerate([*models, *of_labels])]
    verdicts = [one["verdict"] for one in shown[: len(models)]]
    errors = [
        (one.after, i)
        for i, said in enumerate(verdicts)
        for one in said.numbers
        if one.key in BALANCED
    ]
    content = {"step": STEP, "subjects": [page_data(subject) for subject in models]}
    with reported_as(TOO_LARGE, ValueError):  # for a number that is none
        data = json.dumps(content, separators=(",", ":"), allow_nan=False)
    for sign in "&<>":  # so that data cannot end the element around it, whatever a class is called
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    made = {"levelhead": __version__, "Python": platform.python_version(), "numpy": np.__version__}
    return words.get_template("page.html").render(
        subjects=shown[: len(models)],
        labels=shown[len(models) :],
        best=min(errors)[1]
        if len(errors) > 1
        else None,  # of several models, the one with the lowest, once adjusted
        sentences={name: rule.sentence for name, rule in RULES.items()},
        tables=tables,
        data=Markup(data),
        command=command,
        scripts=map(Markup, scripts),
        styles=map(Markup, styles),
        policy=f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        made=made | {"written": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())},
    )


def _shown(index: int, subject: Subject | LabelSubject) -> dict[str, Any]:
    """Return what the page says of a subject before any script runs."""
    if isinstance(subject, LabelSubject):
        said, code, tried = label_verdict(subject), label_code(subject), None
        title = "Threshold of each label"
        rule = "a number of its own is added to each label's logit, which moves its threshold"
    else:
        said, code, tried = verdict(subject), code_to_use(subject), rule_table(subject)
        rule, title = RULES[subject.choice["rule"]].sentence, rule_title(subject.choice["rule"])
    known = {"index": index, "labels": isinstance(subject, LabelSubject), "subject": subject}
    return known | {
        "verdict": said,
        "rule": rule,
        "rule_title": title,
        "code": code,
        "tried": tried,
    }


def _signed_points(number: Number) -> str:  # ties round up, as in the page's script
    return f"{100 * (number.after - number.before) + 1e-9:+.2f}".replace("-", "\N{MINUS SIGN}")


def _hashes(texts: Sequence[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)


def _asset(name: str) -> str:
    return (files("levelhead.report") / name).read_text(encoding="utf-8").strip()


def page_data(subject: Subject) -> dict[str, Any]:
    """Return all of it; `path` is the chosen rule, None without logits, and `others` are the other rules."""
    target, (rare, common) = subject.target, subject.halves
    rules = [_rule_data(subject, view) for view in subject.views]
    lines = [
        (rule_title(rule), curve, _six_digits(100 * curve.values))
        for rule, curve in subject.drawn.items()
    ]
    return {
        "title": subject.title,
        "classes": subject.classes,
        "names": None if subject.names is None else [str(name) for name in subject.names],
        "counts": subject.counts.tolist(),
        "groups": {"rare": rare.tolist(), "common": common.tolist()},
        "gamma": subject.gamma,
        "chosen_on": subject.choice["chosen_on"],
        "labelled": subject.path is not None,
        "mass": None if target is None else subject.mass.tolist(),
        "target": None if target is None else target.tolist(),
        "path": rules[0] if rules else None,
        "others": rules[1:],
        "drawn": [
            {
                "title": title,
                "gammas": [*_six_digits(curve.gammas), curve.end],
                "values": [*values, values[-1]],
            }
            for title, curve, values in lines
        ],
        "calibration": calibration(subject),
        "norms": None if subject.head is None else _six_digits(subject.head.norms),
        "log": _norms_over_epochs(subject),
    }


def _rule_data(subject: Subject, view: RuleView) -> dict[str, Any]:
    """Return one rule: every change of a prediction, and the strengths that the slider can stop at besides its grid."""
    labels = np.zeros(len(view.changes.start), np.int64) if view.path is None else view.path.labels
    best = None if view.path is None and view.gamma is not None else view.best
    special = tuple(value for value in (view.gamma, best) if value is not None)
    classes, stops = (
        1 if view.path is None else subject.classes,
        gamma_stops(view.end, special, view.step),
    )
    coded = (
        not subject.fitted and not view.by_target and bool(RULES[view.rule].code())
    )  # applies at any gamma
    return {
        "rule": view.rule,
        "title": rule_title(view.rule),
        "share": not RULES[view.rule].has_path,
        "gamma": view.gamma,
        "interval": view.interval,
        "end": view.end,
        "step": view.step,
        "special": special,
        "best": best,
        **encode_changes(view.changes, labels, classes, stops),
        "code": code_at_gamma(subject, view.rule) if coded else None,
    }


def _norms_over_epochs(subject: Subject) -> dict[str, Any] | None:
    """Return the norms over the epochs of up to 12 classes, from the most frequent to the rarest."""
    log = [
        record for record in subject.log if record.get("norms") is not None and "epoch" in record
    ]
    if len(log) < 2:
        return None
    order = np.argsort(-subject.counts, kind="stable")
    chosen = order[
        np.unique(np.linspace(0, len(order) - 1, min(MAX_LINES, len(order))).round().astype(int))
    ]
    try:
        norms = np.array([record["norms"] for record in log], np.float64)
    except (TypeError, ValueError):
        norms = np.zeros(0)
    if norms.shape != (len(log), subject.classes) or not np.isfinite(norms).all():
        raise LevelheadError(
            f"expected {subject.classes} norms in each record of an epoch", parameter="log"
        )
    return {
        "epochs": [record["epoch"] for record in log],
        "classes": chosen.tolist(),
        "norms": [_six_digits(norms[:, i]) for i in chosen],
    }


def _six_digits(values: Any) -> list[float]:
    return [float(f"{x:.6g}") for x in np.asarray(values, np.float64)]


def gamma_stops(end: float, special: tuple[float, ...] = (), step: float = STEP) -> np.ndarray:
    """Return the gammas that the slider can stop at, ascending; the page's script divides in the same way."""
    return np.union1d(np.arange(round(end * step) + 1) / step, special)


def encode_changes(
    changes: Envelope, labels: np.ndarray, classes: int, stops: np.ndarray
) -> dict[str, Any]:
    """Return the changes for JSON, samples sorted by true class (0 if unknown), changes by stop and then by sample."""
    order = np.argsort(labels, kind="stable")
    rank = np.argsort(order)
    stop = np.searchsorted(stops, changes.gamma, side="left")
    sample, new_class = rank[changes.sample], changes.new_class
    by = np.lexsort(
        (np.arange(len(stop)), sample, stop)
    )  # a sample's own changes stay in order of gamma
    stop, sample, new_class = stop[by], sample[by], new_class[by]
    last = np.append((stop[1:] != stop[:-1]) | (sample[1:] != sample[:-1]), True)[: len(stop)] & (
        stop < len(stops)
    )
    stop, sample, new_class = stop[last], sample[last], new_class[last]
    first = np.append(True, stop[1:] != stop[:-1])[: len(stop)]
    delta = np.where(first, sample, np.diff(sample, prepend=0))
    # first predictions [N], changes at each stop [S], and of each change [E] its sample and its new class
    parts = (changes.start[order], np.bincount(stop, minlength=len(stops)), delta, new_class)
    # whole numbers below 2^32 as all lowest bytes, then all next ones: the high bytes are nearly all 0
    planes = b"".join(
        part.astype("<u4").view(np.uint8).reshape(-1, 4).T.tobytes() for part in parts
    )
    return {
        "samples": np.bincount(labels, minlength=classes).tolist(),
        "events": len(stop),
        "data": base64.b64encode(zlib.compress(planes)).decode("ascii"),
    }


def reliability(subject: Subject, gamma: float, temperature: float = 1.0) -> dict[str, Any]:
    """Return samples, mean confidence and share right of 15 bins of confidence, the ECE and the log loss."""
    # ECE = sum_b |sum over the bin of w_i (confidence_i - right_i)|, weights of the goal that sum to 1; as
    # `measure.calibration_error`, but a few rows at a time, on all cores and in single precision
    view, logits, kind = subject.views[0], subject.logits, subject.kind
    assert view.path is not None
    assert logits is not None
    labels, weights = view.path.labels, subject.weights(view.path.labels)
    right, (scale, shift) = view.path.right(gamma), view.parts(gamma)
    if gamma == 0:  # as trained, whatever unit the rule's numbers have
        scale, shift = np.ones(len(scale)), np.zeros(len(scale))
    scale, shift = np.float32(scale / temperature), np.float32(shift / temperature)

    def sums(first: int, rows: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            scores = np.multiply(view.smoothed(rows) if gamma else rows, scale, dtype=np.float32)
            scores += shift
            scores -= scores.max(axis=1, keepdims=True)
        some = slice(first, first + len(rows))
        true = scores[np.arange(len(rows)), labels[some]].astype(np.float64)
        sure = 1 / np.exp(scores, out=scores).sum(axis=1).astype(np.float64)
        if np.isnan(sure).any():  # beyond single precision
            raise LevelheadError(TOO_LARGE)
        where, w = np.minimum((sure * BINS).astype(int), BINS - 1), weights[some]
        each = (np.ones(len(rows)), w, w * sure, w * right[some], -w * (true + np.log(sure)))
        return np.stack([np.bincount(where, x, BINS) for x in each])

    parts = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for first, chunk in read_chunks(logits, kind=kind, check=False):  # the path checked them
            step = max(1, _BLOCK // chunk.shape[1])
            begins = range(0, len(chunk), step)
            parts += pool.map(
                sums, [first + i for i in begins], [chunk[i : i + step] for i in begins]
            )
    n, mass, confidence, found, losses = np.sum(parts, axis=0)
    some = np.where(mass > 0, mass, 1.0)
    return {
        "n": np.where(mass > 0, n, 0).astype(int).tolist(),
        "confidence": (confidence / some).round(6).tolist(),
        "right": (found / some).round(6).tolist(),
        "error": float(np.abs(confidence - found).sum()),
        "log_loss": float(losses.sum()),
    }


def calibration(subject: Subject) -> dict[str, Any] | None:
    """Return reliability before, after, and after with the choice's temperature or one fitted here; None if unknown."""
    view, logits, kind = subject.views[0] if subject.views else None, subject.logits, subject.kind
    if view is None or view.path is None or view.gamma is None or logits is None:
        return None
    temperature = subject.choice.get("temperature")
    own, fitted_on = temperature is not None, None
    if temperature is None:
        source, known = subject.held_out or (logits, view.path.labels)
        fitted_on = min(len(known), max(1, FITTED_NUMBERS // source.shape[1]))
        rows = np.sort(np.random.default_rng(0).choice(len(known), fitted_on, replace=False))
        _, some = next(read_chunks(np.asarray(source[rows]), kind=kind, size=1 << 60))
        scale, offset = view.parts(view.gamma)
        weights = subject.weights(known[rows])
        temperature = fit_temperature(
            view.smoothed(some) * scale + offset, known[rows], weights=weights
        )
    alike = (
        "Every class weighs the same"
        if subject.target is None
        else "Classes weigh as the target says"
    )
    return {
        "before": reliability(subject, 0.0),
        "after": reliability(subject, view.gamma),
        "tempered": reliability(subject, view.gamma, temperature),
        "weighed": alike if subject.classes_weighed else "Samples weigh alike, as they come",
        "temperature": temperature,
        "own": own,
        "fitted_on": fitted_on,
        "fitted_apart": subject.held_out is not None,
    }


# One rule: its strength, the metric on samples that it was not fitted on, the gain, and whether it was chosen. And all.
RuleRow = namedtuple("RuleRow", ("title", "strength", "value", "gain", "chosen"))
RuleTable = namedtuple("RuleTable", ("metric", "rows", "why"))


def rule_table(subject: Subject) -> RuleTable | None:
    """Return the rules that were tried; None if only one was."""
    choice, candidates = subject.choice, subject.choice.get("candidates") or ()
    if len(candidates) < 3:
        return None
    metric, why = subject.metric, str(choice.get("why") or "")
    chosen = choice["rule"] if choice["gamma"] or choice.get("scale") else Unchanged.name
    rows = []
    for one in candidates:
        value, is_chosen = format(one["value"], value_form(metric)), one["rule"] == chosen
        if not RULES[one["rule"]].changes:
            rows.append(RuleRow("As trained", "", value, "", is_chosen))
            continue
        second, between = one.get("second"), one.get("interval")
        then = "" if second is None else f", then {round(second, 3) + 0.0:.3f}"
        strength = (
            f"{one['gamma']:.3f}{then}" if RULES[one["rule"]].strengths else "a number per class"
        )
        gain = gain_text(metric, one["gain"], None if between is None else (between[0], between[1]))
        rows.append(RuleRow(rule_title(one["rule"]), strength, value, gain, is_chosen))
    title = TITLES.get(metric, metric)
    return RuleTable(
        title[:1].upper() + title[1:], tuple(rows), f"{why[:1].upper()}{why[1:]}." if why else ""
    )
