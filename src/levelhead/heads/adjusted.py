"""What was done to a model in memory, and the way back.

`Adjusted` is what `adjust_` and `rescale_` return: numbers for a program, one line for a terminal,
a table for a notebook, and `restore()`. It knows nothing of the model's library: the way back is a
function that the place made before it changed anything (`InMemory.keep`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..core.adjustment import Adjustment
from ..show.style import html
from ..support.errors import LevelheadError
from .along import Along
from .notes import done_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes


NOT_CHECKED = "not checked that it reaches the logits: pass an example input"


@dataclass(frozen=True, eq=False, repr=False)
class Adjusted:
    """What `adjust_` or `rescale_` did to a model, and the way back.

    `restore()` gives the parameters their old values back, bit for bit, and takes a new bias out
    again; so does leaving a `with` block.

    Args:
        layers: paths of the layers.
        rule: its name.
        strength: of a rule that has one; None for rules with numbers for each class.
        adjustment: what was done to each row: weight vectors and biases times `scale` [K], then
            `offset` [K] added to biases.
        counts: [K], training samples of each class, or None where they are not known.
        before, after: {path: [K]}, lengths of the weight vectors.
        flips: how many of the predictions given could change by rounding to half precision; None if
            not asked.
        checked: how it is known that the change arrives in the model's logits: by an "example", by
            the "graph" of a Keras model, by the model's "forward" as torch traces it, or by its
            "own inputs" for a trial; None if it was not checked.
        along: where offsets went into the weights of a head without a bias, how far they reach its
            logits; else None.
        new_bias: whether the head had no bias and was given one, a new key of the model's state.
        left_alone: paths of auxiliary heads, which the model runs in training alone; nothing was
            done to them.

    >>> import torch
    >>> from levelhead import adjust_, rules
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 2))
    >>> adjusted = adjust_(model, rules.Shift(1.0), [400, 100])
    >>> adjusted.layers, adjusted.adjustment.offset.round(3)
    (('0',), array([0.   , 1.386]))
    >>> adjusted.restore()
    """

    layers: tuple[str, ...]
    rule: str
    strength: float | None
    adjustment: Adjustment
    counts: np.ndarray | None
    before: Mapping[str, np.ndarray]
    after: Mapping[str, np.ndarray]
    flips: int | None = None
    checked: str | None = None
    along: Along | None = None
    new_bias: bool = False
    left_alone: tuple[str, ...] = ()
    _undo: Callable[[], object] = field(kw_only=True)  # what `restore` calls

    def restore(self) -> None:
        """Give the layers their old values back, bit for bit.

        The old values were kept; to divide by the scales again would round. Marks and notes of the
        adjustment go, too, so that the head may be adjusted anew. Training of the head in between
        is undone as well.

        Raises:
            LevelheadError: their parameters were replaced since, as by a new layer.
        """
        self._undo()

    def __enter__(self) -> Adjusted:
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the norms against the counts, before and after (extra `plot`).

        A rule that only adds to biases changes none; `Tuned.plot` shows what it does to each class.

        Args:
            ax: what to draw on; new Axes if None.

        Raises:
            LevelheadError: the counts are not known.
        """
        from ..show.plot import draw_norms

        if self.counts is None:
            raise LevelheadError("norms are drawn against the counts, which are not known here")
        title = done_text(self.rule, self.strength)
        return draw_norms(self.counts, self.before, self.after, ax, title=title)

    @property
    def classes(self) -> int:
        """How many classes there are: K, or two that share one logit."""
        return max(2, self.adjustment.classes)

    def _repr_html_(self) -> str:
        """Return it as a notebook shows it: a table of what was done."""
        rows = {"rule": done_text(self.rule, self.strength), "classes": str(self.classes)}
        if self.counts is not None:
            largest = self.counts.max()
            least = self.counts.min()
            rows["classes"] += f", of {largest:g} to {least:g} training samples"
        # What was done to the weights, and to the biases.
        if self.adjustment.multiplies:
            rows["scale"] = _range(self.adjustment.scale)
            for path in self.layers:
                norms = f"{_range(self.before[path])} -> {_range(self.after[path])}"
                rows[f"norms of {path or 'the head'}"] = norms
        if self.adjustment.adds:
            to = "logits"
            if self.along is None:
                to = self._bias
            rows[f"added to the {to}"] = _signed_range(self.adjustment.offset)
        if self.along is not None:
            rows["by its weights"] = self.along.text
        if self.flips is not None:
            rows["predictions rounding could flip"] = str(self.flips)
        notes = ["restore() gives the old values back, bit for bit", *self._remarks()]
        return html("Adjusted", rows, notes=notes)

    def __repr__(self) -> str:
        done = f"{done_text(self.rule, self.strength)}, {self.classes} classes"
        layers = [f"{path or 'head'}: {self._done_to(path)}" for path in self.layers]
        return f"Adjusted({'; '.join([done, *layers, *self._remarks()])})"

    def _remarks(self) -> list[str]:
        """Return what else a reader should know: of auxiliary heads, and what was not checked."""
        remarks = []
        if len(self.left_alone) == 1:
            remarks.append(f"{self.left_alone[0]} is run in training only and left as it is")
        elif self.left_alone:
            heads = ", ".join(self.left_alone)
            remarks.append(f"{heads} are run in training only and left as they are")
        if self.checked is None:
            remarks.append(NOT_CHECKED)
        return remarks

    @property
    def _bias(self) -> str:
        """What offsets were added to, in words."""
        if self.new_bias:
            return "new bias"
        return "bias"

    def _done_to(self, path: str) -> str:
        """Return what was done to a layer, in words."""
        parts = []
        if self.adjustment.multiplies:
            parts.append(f"norms {_range(self.before[path])} -> {_range(self.after[path])}")
        if self.along is not None:
            parts.append(f"offsets {_signed_range(self.adjustment.offset)}, {self.along.text}")
        elif self.adjustment.adds:
            parts.append(f"{self._bias} {_signed_range(self.adjustment.offset)}")
        return ", ".join(parts) or "unchanged"


def _range(values: np.ndarray) -> str:
    return f"{values.min():.3g}..{values.max():.3g}"


def _signed_range(values: np.ndarray) -> str:
    return "..".join(f"{value:+.3g}" for value in sorted({values.min(), values.max()}))
