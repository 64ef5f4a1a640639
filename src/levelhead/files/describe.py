"""What was found in a file and done to it, as text for people."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

import numpy as np

from .inspect import Inspection
from .rescale import Done
from .undo import Undone

MOST = 20  # rows of a table; of more classes, those with the largest and the smallest counts


def inspection_text(seen: Inspection, width: int = 30) -> str:
    """The head, a bar for each class's norm (largest count first), and the warnings."""
    lines = [f"{seen.path} ({seen.format})"]
    for layer in seen.layers:
        lines.append(f"  head {layer.key}: {layer.weight} {list(layer.shape)} {layer.dtype}, {layer.bias or 'no bias'}")
    order = np.arange(len(seen.norms)) if seen.counts is None else np.argsort(-seen.counts, kind="stable")
    top = max(float(seen.norms.max()), np.finfo(float).tiny)
    rows = [
        [
            _title(i, seen.names),
            "" if seen.counts is None else str(seen.counts[i]),
            f"{seen.norms[i]:.4g}",
            "█" * max(1, round(width * seen.norms[i] / top)),
        ]
        for i in order.tolist()
    ]
    lines += ["", *_table(["class", "" if seen.counts is None else "count", "norm", ""], _middle_out(rows)), ""]
    if seen.correlation is not None:
        lines.append(f"rank correlation of norm and count: {seen.correlation:.2f}")
    if seen.bias_share is not None:
        lines.append(f"bias: |b| is {seen.bias_share:.2g} of ||w|| in the median class")
    if seen.bias_gap is not None:
        lines.append(f"at gamma 0.5, --bias scale and --bias keep are up to {seen.bias_gap:.3g} apart in a logit")
    return "\n".join([*lines, *(f"warning: {text}" for text in seen.warnings)]).rstrip()


def done_text(done: Done) -> str:
    """What changed, class by class, and where the way back is."""
    what = {"rescale": "RS", "tau": "tau-normalization", "shift": "logit shift"}[done.rule]
    bias = None if done.rule == "shift" else done.bias
    policy = {"scale": ", bias scaled", "keep": ", bias kept", None: ""}[bias]
    last = "shift" if done.rule == "shift" else "factor"
    rows = [
        [_title(i, done.names), str(done.counts[i]), *(f"{x[i]:.4g}" for x in (done.before, done.after, done.factors))]
        for i in np.argsort(-done.counts, kind="stable").tolist()
    ]
    lines = [
        f"{done.path} -> {done.out}",
        f"  {', '.join(done.head)}: {what}, gamma {done.gamma:g}{policy}",
        "",
        *_table(["class", "count", "norm before", "after", last], _middle_out(rows)),
        "",
    ]
    if done.original:
        command = f"levelhead undo {quote(done.out)} -o BACK"
        lines.append(f"kept {done.original}: `{command}` gives the input back, byte for byte")
    if done.flips is not None:
        lines.append(f"predictions that rounding to half precision could flip: {done.flips}")
    return "\n".join([*lines, *(f"note: {text}" for text in done.notes)])


def undone_text(undone: Undone) -> str:
    if undone.exact:
        sums = "".join(f"\n  {name}: sha256 {digest}" for name, digest in undone.sha256.items())
        return f"{undone.path} -> {undone.out}: the file that was adjusted, byte for byte{sums}"
    return (
        f"{undone.path} -> {undone.out}: divided by the recorded factors, exact only to rounding "
        f"(there was no {undone.path}.original)"
    )


def _title(i: int, names: Sequence[str] | None) -> str:
    return str(i) if names is None else f"{i} {names[i]}"


def _middle_out(rows: list[list[str]]) -> list[list[str]]:
    """The first and the last rows, with a row of dots between them if there are too many."""
    if len(rows) <= MOST:
        return rows
    dots = ["...", *[""] * (len(rows[0]) - 1)]
    return [*rows[: MOST // 2], dots, *rows[-(MOST // 2) :]]


def _table(titles: list[str], rows: list[list[str]]) -> list[str]:
    """Columns as wide as they must be: the first and the last to the left, numbers to the right; empty columns go."""
    columns = [column for column in zip(titles, *rows, strict=True) if any(column)]
    sides = ["<"] + [">"] * (len(columns) - 1)
    if not titles[-1]:
        sides[-1] = "<"
    padded = [
        [f"{cell:{side}{max(map(len, column))}}" for cell in column]
        for column, side in zip(columns, sides, strict=True)
    ]
    return ["  " + "  ".join(row).rstrip() for row in zip(*padded, strict=True)]
