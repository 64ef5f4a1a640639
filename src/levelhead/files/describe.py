"""Results as text for people: what was found in a file, and what was done to it."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import visible
from ..rules.rule import RULES

if TYPE_CHECKING:
    from .inspect import Inspection
    from .model import RescaleResult
    from .undo import UndoResult

MOST_ROWS = 20  # of a table; of more classes, those with the largest and the smallest counts are shown


def inspection_text(seen: Inspection, width: int = 30) -> str:
    """Return the head, a bar for each class's norm (largest count first), and the warnings."""
    lines, rows = [f"{seen.path} ({seen.format})"], []
    for one in seen.layers:
        key, weight, bias = map(visible, (one.key, one.weight, one.bias or "no bias"))
        lines.append(f"  head {key}: {weight} {list(one.shape)} {one.dtype}, {bias}")
    order = np.arange(len(seen.norms)) if seen.counts is None else np.argsort(-seen.counts, kind="stable")
    top = max(float(seen.norms.max()), np.finfo(float).tiny)
    for i in order.tolist():
        count = "" if seen.counts is None else str(seen.counts[i])
        bar = "█" * max(1, round(width * seen.norms[i] / top))
        rows.append([_row_title(i, seen.names), count, f"{seen.norms[i]:.4g}", bar])
    lines += ["", *_table(["class", "" if seen.counts is None else "count", "norm", ""], rows), ""]
    if seen.correlation is not None:
        lines.append(f"rank correlation of norm and count: {seen.correlation:.2f}")
    if seen.bias_share is not None:
        lines.append(f"bias: |b| is {seen.bias_share:.2g} of ||w|| in the median class")
    if seen.bias_gap is not None:
        lines.append(f"at gamma 0.5, scaling and keeping the bias are up to {seen.bias_gap:.3g} apart in a logit")
    return "\n".join([*lines, *(f"warning: {visible(text)}" for text in seen.warnings)]).rstrip()


def rescale_text(done: RescaleResult) -> str:
    """Return what changed, class by class, and how to undo it."""
    rule = RULES[done.rule]
    shift, strength = not rule.multiplies, f", gamma {done.gamma:g}" if rule.strengths else ""
    policy = {"scale": ", bias scaled", "keep": ", bias kept", None: ""}[None if shift else done.bias]
    then = "" if done.offset is None else "then shift"
    one_logit = len(done.factors) < len(done.counts)
    rows = []
    for i in [0] if one_logit else np.argsort(-done.counts, kind="stable").tolist():
        name, count = _row_title(i, done.names), f"{done.counts[i]:.15g}"
        name, count = ("the logit", "/".join(f"{n:g}" for n in done.counts)) if one_logit else (name, count)
        offset = "" if done.offset is None else f"{done.offset[i]:.4g}"
        rows.append([name, count, *(f"{x[i]:.4g}" for x in (done.before, done.after, done.factors)), offset])
    lines = [
        f"{done.path} -> {done.out}",
        f"  {visible(', '.join(done.head))}: {rule.title}{strength}{policy}",
        "",
        *_table(["class", "count", "norm before", "after", "shift" if shift else "factor", then], rows),
        "",
    ]
    if done.original:
        undo = f"`levelhead undo {quote(done.out)} -o BACK`"
        lines.append(f"kept {done.original}: {undo} gives the input back, byte for byte")
    if done.flips is not None:
        lines.append(f"predictions that rounding to half precision could flip: {done.flips}")
    return "\n".join([*lines, *(f"note: {visible(text)}" for text in done.notes)])


def undo_text(undone: UndoResult) -> str:
    """Return what was written, and whether it is exact."""
    if undone.exact:
        sums = "".join(f"\n  {name}: sha256 {digest}" for name, digest in undone.sha256.items())
        return f"{undone.path} -> {undone.out}: the file that was adjusted, byte for byte{sums}"
    how = f"divided by the recorded factors, exact only up to rounding (there was no {undone.path}.original)"
    return f"{undone.path} -> {undone.out}: {how}"


def _row_title(i: int, names: Sequence[str] | None) -> str:
    return str(i) if names is None else f"{i} {visible(names[i])}"


def _table(titles: list[str], rows: list[list[str]]) -> list[str]:
    """Align columns, the first and a last without a title to the left, others to the right; drop empty columns."""
    if len(rows) > MOST_ROWS:
        rows = [*rows[: MOST_ROWS // 2], ["...", *[""] * (len(titles) - 1)], *rows[-(MOST_ROWS // 2) :]]
    columns = [column for column in zip(titles, *rows, strict=True) if any(column)]
    sides = ["<"] + [">"] * (len(columns) - 1)
    if not columns[-1][0]:
        sides[-1] = "<"
    widths = [f"{side}{max(map(len, column))}" for column, side in zip(columns, sides, strict=True)]
    padded = [[f"{cell:{width}}" for cell in column] for column, width in zip(columns, widths, strict=True)]
    return ["  " + "  ".join(row).rstrip() for row in zip(*padded, strict=True)]
