"""The page: a template filled with what is known of each subject.

`write` gives equal titles another name, `render_page` fills page.html, and `show` collects for it
all that the page shows of one subject: sentences from words.py, drawings from charts.py and its
kin. Jinja2 escapes every text, as names come from files; the page carries its script and style,
and a Content-Security-Policy by which it can load nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from .._version import __version__
from ..core.tuned import Tuned, rule_of
from ..files.located import json_of
from ..support import atomic
from ..support.errors import LevelheadError
from . import words
from .calibration import Reliability, calibration, reliability_chart
from .charts import recall_chart, strength_chart
from .confusion import ConfusedPair, Matrix, matrices, pairs
from .norms import NormLine, norm_history, norms_chart, training_chart
from .subject import Subject
from .svg import Drawing
from .use_it import TUNED, Code, code_to_use

SEARCHED = 20  # classes from which on their table can be searched


@dataclass(frozen=True)
class PageTable:
    """A table to show as it is, such as one of the paper's.

    Args:
        title: its heading on the page.
        header, rows: the cells, as text; the first of a row is its title.
        note: a sentence above it.

    >>> PageTable("errors", ["", "100"], [["WVN", "20.2"]], note="Ratio 100.").rows
    [['WVN', '20.2']]
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    @staticmethod
    def of_markdown(title: str, text: str, note: str = "") -> PageTable:
        """Return a table that is written in Markdown.

        Emphasis is dropped: the page has its own.

        Args:
            title, note: as in `PageTable`.
            text: the lines of the table: header, rule, rows.

        >>> table = PageTable.of_markdown("errors", "| | 100 |\\n|---|---|\\n| WVN | **20.2** |")
        >>> table.header, table.rows
        (['', '100'], [['WVN', '20.2']])
        """
        lines = []
        for line in text.strip().splitlines():
            lines.append([cell.replace("*", "").strip() for cell in line.strip("|").split("|")])
        header, _rule, *rows = lines
        return PageTable(title, header, rows, note)


def is_records(path: str | Path) -> bool:
    """Return whether a path is a folder of records that `levelhead reproduce` writes.

    A run is a folder with .json files, too: the keys of the first one tell.

    Args:
        path: of the folder.

    >>> is_records("tuned.json")
    False
    """
    if not Path(path).is_dir():
        return False
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

    Raises:
        LevelheadError: another suffix, or nothing to show.
        OSError: the page cannot be written; a page that was there is then as it was.

    >>> from tempfile import TemporaryDirectory
    >>> from levelhead.core.tuned import Tuned
    >>> from levelhead.core.adjustment import Adjustment
    >>> from levelhead.report import of_tuned
    >>> tuned = Tuned("shift", Adjustment.adding([0.0, 1.5]), evidence=None, strength=1.0)
    >>> with TemporaryDirectory() as folder:
    ...     page = write(f"{folder}/page.html", [of_tuned(tuned, title="animals")])
    ...     "animals" in page.read_text(encoding="utf-8")
    True
    """
    path = Path(out)
    check_suffix(path)
    if not subjects and not tables:
        raise LevelheadError("expected at least one subject or table, got none")
    atomic.write(path, render_page(with_titles(subjects), tables=tables, command=command))
    return path


def check_suffix(path: Path) -> None:
    """Raise LevelheadError unless the name of a page ends in .html, as browsers and mail go by it."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise LevelheadError(f"{path}: expected a page as .html, got {path.suffix or 'no suffix'}")


def with_titles(subjects: Sequence[Subject]) -> list[Subject]:
    """Return the subjects with titles that differ.

    Side by side, several runs are often called the same, as their files are: a/logits, b/logits.
    """
    titles = [subject.title for subject in subjects]
    longer = [_longer_titles(subject, i + 1) for i, subject in enumerate(subjects)]
    for step in range(3):
        repeated = [i for i, title in enumerate(titles) if titles.count(title) > 1]
        for i in repeated:
            titles[i] = longer[i][step]
    return [replace(subject, title=title) for subject, title in zip(subjects, titles, strict=True)]


def _longer_titles(subject: Subject, number: int) -> tuple[str, str, str]:
    """Return the title with its folder; that with the suffix, for s.csv beside s.parquet; that with a number.

    Args:
        subject: whose first file has a folder and a suffix; without files, titles get no longer by these.
        number: of the subject on the page.
    """
    file = next(iter(subject.files.values()), "")
    title = subject.title
    if file:
        folder = Path(file).resolve().parent.name
        if folder:  # the root of a disk has no name
            title = f"{folder}/{title}"
    whole = f"{title}{Path(file).suffix}"
    return title, whole, f"{whole}, {number}"


def render_page(
    subjects: Sequence[Subject],
    *,
    tables: Sequence[PageTable] = (),
    command: str = "",
) -> str:
    """Return the page as text. Arguments are as in `write`.

    The Content-Security-Policy names the one script and the one style by their sha256, so a browser
    runs nothing else: not even what a class name could smuggle past the escaping.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # StrictUndefined: a name that page.html has wrong is an error, and no hole in the page.
    environment = Environment(
        loader=PackageLoader("levelhead.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": words.share_text, "points": words.points, "number": _number}
    # Both are written into the page, and named in its policy by their hashes.
    script = _asset("page.js")
    style = _asset("page.css")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    provenance = {
        "levelhead": __version__,
        "Python": platform.python_version(),
        "numpy": np.__version__,
        "written": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }
    return environment.get_template("page.html").render(
        subjects=[show(subject, i) for i, subject in enumerate(subjects)],
        best=_best(subjects),
        unlike=words.unlike(subjects),
        tables=tables,
        terms=words.terms(subjects),
        command=command,
        script=Markup(script),
        style=Markup(style),
        policy=policy,
        searched=SEARCHED,
        provenance=provenance,
    )


def _best(subjects: Sequence[Subject]) -> float | None:
    """Return the highest balanced accuracy, to be marked; None if there is nothing to compare.

    Whatever each subject was chosen for, all that were judged have this number.
    """
    adjusted = []
    for subject in subjects:
        evidence = subject.tuned.evidence
        if evidence is not None and not subject.tuned.multilabel:
            adjusted.append(float(evidence.after.balanced_accuracy))
    if len(adjusted) < 2:
        return None
    return max(adjusted)


class Diagram(NamedTuple):
    """One reliability diagram, and the drawing of it."""

    counted: Reliability  # its numbers, for the line below the drawing
    drawing: Markup  # an <svg>


@dataclass(frozen=True)
class Shown:
    """All that page.html shows of one subject, by the names it uses. What is None is left out."""

    index: int  # among the subjects of the page, by which its elements are told apart
    subject: Subject  # for its title, its rows and its facts
    tuned: Tuned  # for the verdict, the gain and the price, in its own words
    rule: str  # in words
    status: words.Status  # the color of the verdict
    sign: str  # beside it, for those who do not see the color
    numbers: list[words.Number]  # accuracy and its kin, before and after
    reasons: dict[str, str]  # sentences, by their titles
    warnings: list[str]  # sentences, the most important first
    code: Code  # to copy
    tuned_name: str  # under which tuned.json is offered
    tuned_link: str  # its content, as a data: link
    # Charts are <svg>; a note is a sentence or two above its chart.
    recall_chart: Drawing | None
    recall_note: str
    strength_chart: Drawing | None  # of a rule with one strength
    strength_note: str
    matrices: list[Matrix]  # of few classes; of many there are pairs
    pairs: list[ConfusedPair]
    confusion_note: str
    diagrams: list[Diagram]  # calibration: as trained, adjusted, with the temperature
    calibration_note: str
    norms_chart: Drawing | None  # of a rule that multiplies
    norm_lines: list[NormLine]  # the key of the next chart
    training_chart: Drawing | None  # norms over the epochs, of a run with a log


def show(subject: Subject, index: int) -> Shown:
    """Return all that the page shows of a subject.

    Everything is computed here, so that page.html only places it, beside the words of `Tuned`.

    Args:
        subject: to show.
        index: its number on the page, by which the ids of its elements differ from others'.
    """
    tuned = subject.tuned
    status = words.status(subject)
    tuned_json = json.dumps(tuned.to_dict()).encode()

    recalls = None
    if tuned.evidence is not None:
        recalls = Drawing.of(partial(recall_chart, subject))
    strengths = None
    if subject.path is not None:
        strengths = Drawing.of(partial(strength_chart, subject, subject.path))

    # Each part is empty or None where the subject does not have what it needs.
    diagrams = []
    calibration_note = ""
    counted = calibration(subject)
    if counted is not None:
        diagrams = [Diagram(diagram, reliability_chart(diagram)) for diagram in counted.diagrams]
        calibration_note = words.calibration_note(subject, counted.shown, counted.of)

    norm_lines = []
    training = None
    history = norm_history(subject)
    if history is not None:
        norm_lines = history.lines
        training = Drawing.of(partial(training_chart, history))

    return Shown(
        index=index,
        subject=subject,
        tuned=tuned,
        rule=rule_of(tuned).title,
        status=status,
        sign=words.SIGNS[status],
        numbers=words.numbers(subject),
        reasons=words.reasons(subject),
        warnings=words.warnings(subject),
        code=code_to_use(subject),
        tuned_name=TUNED,
        tuned_link=f"data:application/json;base64,{base64.b64encode(tuned_json).decode()}",
        recall_chart=recalls,
        recall_note=words.recall_note(subject),
        strength_chart=strengths,
        strength_note=words.strength_note(subject),
        matrices=matrices(subject),
        pairs=pairs(subject),
        confusion_note=words.confusion_note(subject),
        diagrams=diagrams,
        calibration_note=calibration_note,
        norms_chart=norms_chart(subject),
        norm_lines=norm_lines,
        training_chart=training,
    )


def _number(value: float) -> str:
    """Return a count with thousands apart; a weighted one may have decimals.

    >>> _number(12000.0), _number(1234.5)
    ('12,000', '1,234.5')
    """
    if value == round(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}"


def _hash(text: str) -> str:
    """Return what a Content-Security-Policy knows an inline script or style by: 'sha256-' and base64 of the digest."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _asset(name: str) -> str:
    """Return the text of a file of this folder, stripped: the hash in the policy is of exactly this."""
    return (files("levelhead.report") / name).read_text(encoding="utf-8").strip()
