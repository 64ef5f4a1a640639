"""What was done to a model in memory, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core.rules import RULES, Rescale
from ..show.style import html

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class Adjusted:
    """What `rescale_` or `adjust_` did to a model, and the way back.

    `restore()` gives the parameters their old values back, bit for bit, and takes a new bias out again; so does leaving
    a `with` block.

    Args:
        layers, gamma, counts, rule: paths of the layers; the strength; [K], training samples of each class; its name.
        factors: [K], what each weight vector was multiplied by; for the rule `shift`, what was added to each bias.
        before, after: {path: [K]}, lengths of the weight vectors.
        offset: [K], what was added to each bias after it was multiplied; None for rules of one strength.
        flips: how many of the predictions given could change by rounding to half precision; None if not asked.
    """

    layers: tuple[str, ...]
    gamma: float
    counts: np.ndarray
    factors: np.ndarray
    before: Mapping[str, np.ndarray]
    after: Mapping[str, np.ndarray]
    rule: str = Rescale.name
    offset: np.ndarray | None = None
    flips: int | None = None
    _undo: Callable[[], object] = dict  # does nothing

    def restore(self) -> None:
        """Give the layers their old values back, bit for bit; raise if their parameters were replaced since."""
        self._undo()

    def __enter__(self) -> Adjusted:
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the norms against the counts, before and after, on the Axes given or new ones (extra `plot`)."""
        from ..show.plot import draw_norms

        return draw_norms(
            self.counts,
            self.before,
            self.after,
            ax,
            title=f"{self._prefix}gamma = {self.gamma:.3g}",
        )

    def _repr_html_(self) -> str:
        rule, by = RULES[self.rule], f"{self.factors.min():.3g} to {self.factors.max():.3g}"
        counts = f"{len(self.counts)}, of {self.counts.max():g} to {self.counts.min():g} training samples"
        rows = {"rule": rule.title, "gamma": f"{self.gamma:.4g}", "classes": counts}
        rows["factors" if rule.multiplies else "added to the bias"] = by
        if self.offset is not None:
            rows["added to the bias"] = _range(self.offset)
        for path in self.layers if rule.multiplies else ():
            rows[f"norms of {path or 'the head'}"] = (
                f"{_range(self.before[path])} -> {_range(self.after[path])}"
            )
        if self.flips is not None:
            rows["predictions rounding could flip"] = str(self.flips)
        return html("Adjusted", rows, notes=["restore() gives the old values back, bit for bit"])

    def __repr__(self) -> str:
        scales, done = RULES[self.rule].multiplies, []
        added = self.offset if scales else self.factors
        bias = (
            ""
            if added is None
            else f"bias {'..'.join(f'{x:+.3g}' for x in sorted({added.min(), added.max()}))}"
        )
        for path in self.layers:
            norms = (
                f"norms {_range(self.before[path])} -> {_range(self.after[path])}" if scales else ""
            )
            done.append(f"{path or 'head'}: {', '.join(filter(None, (norms, bias)))}")
        return f"Adjusted({self._prefix}gamma={self.gamma:g}, {len(self.counts)} classes; {'; '.join(done)})"

    @property
    def _prefix(self) -> str:
        return "" if RULES[self.rule].unsaid else f"{self.rule}, "


def _range(norms: np.ndarray) -> str:
    return f"{norms.min():.3g}..{norms.max():.3g}"
