"""The page: facts as JSON, words through Jinja2 with autoescape, our own script and style inline, nothing else.

A strict Content-Security-Policy lets the page run exactly the script and style written into it, by their hashes, and
load nothing: no network, no images but data, no frames, no forms. Class names are never markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..core import atomic
from ..core.errors import LevelheadError
from .encode_changes import STEP
from .page_data import code, facts
from .subject import Subject
from .verdict import RULES, Number, percent, verdict

SCRIPTS = ("format.js", "engine.js", "chart.js", "curve.js", "classes.js", "confusion.js", "head.js", "calibration.js",
           "compare.js", "page.js")


@dataclass(frozen=True)
class Table:
    """A table to show as it is: of the paper, beside ours. Cells are text; a row's first is its title."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    @staticmethod
    def of_markdown(title: str, text: str, note: str = "") -> Table:
        """A table that is written in Markdown.

        >>> Table.of_markdown("t", "| ratio | 100 |\\n|---|---|\\n| *WVN, published* | *20.17* |").rows
        [['WVN, published', '20.17']]
        """
        header, _, *rows = [[cell.replace("*", "").strip() for cell in line.strip("|").split("|")]
                            for line in text.strip().splitlines()]
        return Table(title, header, rows, note)


def write(out: str | Path, subjects: Sequence[Subject], *, tables: Sequence[Table] = (), command: str = "") -> Path:
    """Write the page of one subject or of several side by side, whole or not at all.

    Args:
        out: an .html file.
        subjects: at least one, unless there are tables.
        tables: shown below.
        command: by which the page was made, for its last lines.
    """
    path = Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise LevelheadError(f"{path}: expected a page as .html, got {path.suffix or 'no suffix'}")
    if not subjects and not tables:
        raise LevelheadError("expected something to show: a run, a snapshot, a tuned.json, or logits")
    atomic.write(path, html(subjects, tables=tables, command=command))
    return path


def html(subjects: Sequence[Subject], *, tables: Sequence[Table] = (), command: str = "") -> str:
    """The page as text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    words = Environment(loader=PackageLoader("levelhead.report", ""), autoescape=True, undefined=StrictUndefined,
                        trim_blocks=True, lstrip_blocks=True)
    words.filters |= {"percent": percent, "points": points}
    script = "(() => {\n\"use strict\";\n" + "\n".join(map(_asset, SCRIPTS)) + "\n})();\n"
    scripts, styles = [_asset("uPlot.iife.min.js"), script], [_asset("uPlot.min.css"), _asset("page.css")]
    data = [facts(subject) for subject in subjects]
    return words.get_template("page.html").render(
        subjects=[{"subject": subject, "verdict": verdict(subject), "rule": RULES[subject.choice["rule"]],
                   "code": code(subject)} for subject in subjects],
        tables=tables, data=Markup(_json({"step": STEP, "subjects": data})), command=command,
        scripts=[Markup(text) for text in scripts], styles=[Markup(text) for text in styles],
        policy=f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}; img-src data:; "
               "base-uri 'none'; form-action 'none'",
        made={"levelhead": __version__, "Python": platform.python_version(), "numpy": np.__version__,
              "written": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())},
    )


def points(number: Number) -> str:
    """A change in points, signed; ties go up, as on the page."""
    return f"{100 * (number.after - number.before) + 1e-9:+.2f}".replace("-", "\N{MINUS SIGN}")


def _json(value: Any) -> str:
    """JSON that cannot end the element it stands in, whatever a class is called."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _hashes(texts: Sequence[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)


def _asset(name: str) -> str:
    return (files("levelhead.report") / name).read_text(encoding="utf-8").strip()
