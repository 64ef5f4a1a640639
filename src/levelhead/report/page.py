"""The page: text by Jinja2 with autoescape; a strict Content-Security-Policy lets it load nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..core.rules import RULES
from ..files.spans import json_of
from ..support import atomic
from ..support.errors import LevelheadError
from . import charts, words
from .confusion import matrices, pairs
from .subject import Subject
from .use_it import TUNED, code_to_use

SEARCHED = 20  # classes from which on their table can be searched


@dataclass(frozen=True)
class PageTable:
    """A table to show as it is, such as one of the paper's. Cells are text; the first is a title."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    @staticmethod
    def of_markdown(title: str, text: str, note: str = "") -> PageTable:
        """Return a table that is written in Markdown."""
        lines = []
        for line in text.strip().splitlines():
            lines.append([cell.replace("*", "").strip() for cell in line.strip("|").split("|")])
        return PageTable(title, lines[0], lines[2:], note)


def is_records(path: str | Path) -> bool:
    """Return whether a path is a folder of records that `levelhead reproduce` writes."""
    first = None
    if Path(path).is_dir():
        first = min(Path(path).glob("*.json"), default=None)
    return first is not None and {"column", "method", "curve", "counts"} <= json_of(first).keys()


def write(
    out: str | Path,
    subjects: Sequence[Subject],
    *,
    tables: Sequence[PageTable] = (),
    command: str = "",
) -> Path:
    """Write the page of one subject, or of several side by side, in one step; return its path.

    Args:
        out: an .html file.
        subjects, tables: at least one of either; tables are shown below the subjects.
        command: the command that made the page, for its last lines.
    """
    path = Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise LevelheadError(f"{path}: expected a page as .html, got {path.suffix or 'no suffix'}")
    if not subjects and not tables:
        raise LevelheadError("expected at least one subject or table, got none")
    atomic.write(path, render_page(with_titles(subjects), tables=tables, command=command))
    return path


def with_titles(subjects: Sequence[Subject]) -> list[Subject]:
    """Return the subjects with titles that differ: equal ones get the name of their folder."""
    titles = [subject.title for subject in subjects]
    renamed = []
    for i, subject in enumerate(subjects):
        if titles.count(subject.title) > 1:
            title = f"{subject.title}, {i + 1}"
            place = next(iter(subject.files.values()), "")
            above = Path(place).resolve().parent.name if place else ""
            if above:
                title = f"{above}/{subject.title}"
            subject = replace(subject, title=title)
        renamed.append(subject)
    return renamed


def render_page(
    subjects: Sequence[Subject],
    *,
    tables: Sequence[PageTable] = (),
    command: str = "",
) -> str:
    """Return the page as text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("levelhead.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": words.share_text, "points": words.points, "number": _number}
    script = _asset("page.js")
    style = _asset("page.css")
    shown = [show(subject, i) for i, subject in enumerate(subjects)]
    after = [
        float(subject.tuned.evidence.after.balanced_accuracy)
        for subject in subjects
        if subject.tuned.evidence is not None and not subject.tuned.multilabel
    ]
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return environment.get_template("page.html").render(
        subjects=shown,
        best=max(after) if len(after) > 1 else None,
        tables=tables,
        terms=words.TERMS,
        command=command,
        script=Markup(script),
        style=Markup(style),
        policy=policy,
        searched=SEARCHED,
        made={
            "levelhead": __version__,
            "Python": platform.python_version(),
            "numpy": np.__version__,
            "written": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        },
    )


def show(subject: Subject, index: int) -> dict[str, Any]:
    """Return all that the page shows of a subject."""
    tuned = subject.tuned
    status = words.status(subject)
    confidence = charts.calibration(subject)
    lines = charts.norm_lines(subject)
    tuned_json = json.dumps(tuned.to_dict()).encode()
    return {
        "index": index,
        "subject": subject,
        "tuned": tuned,
        "rule": RULES[tuned.rule].title,
        "status": status,
        "sign": words.SIGNS[status],
        "numbers": words.numbers(subject),
        "reasons": words.reasons(subject),
        "warnings": words.warnings(subject),
        "code": code_to_use(subject),
        "tuned_name": TUNED,
        "tuned_link": f"data:application/json;base64,{base64.b64encode(tuned_json).decode()}",
        "recall_chart": None if tuned.evidence is None else charts.recall_chart(subject),
        "recall_note": words.recall_note(subject),
        "strength_chart": charts.strength_chart(subject),
        "strength_note": words.strength_note(subject),
        "matrices": matrices(subject),
        "pairs": pairs(subject),
        "confusion_note": words.confusion_note(subject),
        "diagrams": _diagrams(confidence),
        "calibration_note": _calibration_note(subject, confidence),
        "norms_chart": charts.norms_chart(subject),
        "norm_lines": lines,
        "training_chart": charts.training_chart(subject, lines) if lines else None,
    }


def _diagrams(confidence: charts.Calibration | None) -> list[tuple[Any, Any]]:
    if confidence is None:
        return []
    return [(diagram, charts.reliability_chart(diagram)) for diagram in confidence.diagrams]


def _calibration_note(subject: Subject, confidence: charts.Calibration | None) -> str:
    if confidence is None:
        return ""
    return words.calibration_note(subject, confidence.shown, confidence.of)


def _number(value: float) -> str:
    """Return a count with thousands apart; a weighted one may have decimals."""
    if value == round(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}"


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _asset(name: str) -> str:
    return (files("levelhead.report") / name).read_text(encoding="utf-8").strip()
