"""The page: data as JSON, text by Jinja2 with autoescape; a strict Content-Security-Policy lets it load nothing."""

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
from ..core import atomic
from ..core.errors import LevelheadError
from ..io.text import parse_json
from ..io.text import read as read_text
from ..rules.rule import RULES
from .page_data import STEP, TOO_LARGE, page_data, rule_table
from .subject import LabelSubject, Subject, rule_title
from .use_it import code_to_use, label_code
from .verdict import Number, label_verdict, percent_text, verdict

SCRIPTS = ("format", "engine", "chart", "curve", "classes", "confusion", "head", "calibration", "compare", "page")
BALANCED = ("balanced", "balanced_error")  # keys of that number, from the samples or from the choice alone


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
            [cell.replace("*", "").strip() for cell in line.strip("|").split("|")] for line in text.strip().splitlines()
        ]
        return PageTable(title, header, rows, note)


def is_records(path: str | Path) -> bool:
    """Return whether a path is a folder of the records that `levelhead reproduce` writes, one per network."""
    first = min(Path(path).glob("*.json"), default=None) if Path(path).is_dir() else None
    try:
        record = None if first is None else parse_json(read_text(first))
    except ValueError:
        return False
    return isinstance(record, dict) and {"column", "method", "curve", "counts"} <= record.keys()


def write(
    out: str | Path, subjects: Sequence[Subject | LabelSubject], *, tables: Sequence[PageTable] = (), command: str = ""
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
            place = next((subject.files[key] for key in ("run", "snapshot", "logits") if key in subject.files), None)
            above = Path(place).resolve().parent.name if place else ""
            found[i] = replace(subject, title=f"{above}/{title}" if above else f"{title}, {i + 1}")
    return found


def render_page(
    subjects: Sequence[Subject | LabelSubject], *, tables: Sequence[PageTable] = (), command: str = ""
) -> str:
    """Return the page as text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    words = Environment(loader=PackageLoader("levelhead.report", ""), autoescape=True, undefined=StrictUndefined)
    words.trim_blocks = words.lstrip_blocks = True
    words.filters |= {"percent": percent_text, "points": signed_points}
    script = '(() => {\n"use strict";\n' + "\n".join(_asset(f"{name}.js") for name in SCRIPTS) + "\n})();\n"
    scripts, styles = [_asset("uPlot.iife.min.js"), script], [_asset("uPlot.min.css"), _asset("page.css")]
    models = [subject for subject in subjects if isinstance(subject, Subject)]
    of_labels = [subject for subject in subjects if isinstance(subject, LabelSubject)]
    shown = [_shown(i, subject) for i, subject in enumerate([*models, *of_labels])]
    verdicts = [one["verdict"] for one in shown[: len(models)]]
    errors = [(one.after, i) for i, said in enumerate(verdicts) for one in said.numbers if one.key in BALANCED]
    content = {"step": STEP, "subjects": [page_data(subject) for subject in models]}
    try:
        data = json.dumps(content, separators=(",", ":"), allow_nan=False)
    except ValueError:  # a number that is none
        raise LevelheadError(TOO_LARGE) from None
    for sign in "&<>":  # so that data cannot end the element around it, whatever a class is called
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    return words.get_template("page.html").render(
        subjects=shown[: len(models)],
        labels=shown[len(models) :],
        best=min(errors)[1] if len(errors) > 1 else None,  # of several models, the one with the lowest, once adjusted
        sentences={name: rule.sentence for name, rule in RULES.items()},
        tables=tables,
        data=Markup(data),
        command=command,
        scripts=map(Markup, scripts),
        styles=map(Markup, styles),
        policy=f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        made={
            "levelhead": __version__,
            "Python": platform.python_version(),
            "numpy": np.__version__,
            "written": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        },
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
    return known | {"verdict": said, "rule": rule, "rule_title": title, "code": code, "tried": tried}


def signed_points(number: Number) -> str:
    """Return a change in points with its sign; ties round up, as in the page's script."""
    return f"{100 * (number.after - number.before) + 1e-9:+.2f}".replace("-", "\N{MINUS SIGN}")


def _hashes(texts: Sequence[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)


def _asset(name: str) -> str:
    return (files("levelhead.report") / name).read_text(encoding="utf-8").strip()
