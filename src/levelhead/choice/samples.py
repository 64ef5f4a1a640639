"""Held-out samples as a choice needs them: checked, with the scale of their scores and the path of each rule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..core.array import Array, as_array
from ..core.counts import Counts
from ..core.errors import LevelheadError
from ..core.logits import fit_scale, some_rows
from ..path.engines import check_samples
from ..path.metrics import ERRORS
from ..path.path import GammaPath, gamma_path
from ..rules.rule import RULES, Shift, find_path_rule
from .choose import RulePath, class_shares, kind_of_scores
from .objective import Pull
from .options import TuneOptions

Part = tuple[Array, np.ndarray, np.ndarray]  # logits [n, K], labels [n], counts [K]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out samples, in parts that each have their own counts, with the options of the tuning.

    Args:
        parts: (logits [n, K], labels [n], counts [K]) of each part, checked.
        joined: the path of each rule, of samples whose logits were not kept; None if the logits are here.
    """

    parts: tuple[Part, ...]
    options: TuneOptions
    joined: Mapping[str, GammaPath] | None = None

    @staticmethod
    def of(parts: Sequence[tuple[Array, Array, Counts]], options: TuneOptions) -> "HeldOut":
        """Return the samples, checked."""
        found = tuple(_check_part(*part, options.names) for part in parts)
        sizes = sorted({len(counts) for *_, counts in found})
        if len(sizes) > 1:
            raise LevelheadError(
                f"expected the same classes in every fold, got folds of {', '.join(map(str, sizes))} classes",
                parameter="folds",
            )
        return HeldOut(found, options)

    @cached_property
    def labels(self) -> np.ndarray:
        """The labels of all parts, [N]."""
        return np.concatenate([labels for _, labels, _ in self.parts])

    @property
    def classes(self) -> int:
        """K."""
        return len(self.parts[0][2])

    @property
    def numbers(self) -> int:
        """N times K."""
        return len(self.labels) * self.classes

    @cached_property
    def of_probabilities(self) -> bool:
        """Whether the scores are probabilities or their logarithms, which are not to be multiplied."""
        return any(kind_of_scores(logits, self.options.kind) == "probabilities" for logits, *_ in self.parts)

    @cached_property
    def weights(self) -> np.ndarray:
        """The weight of each sample in the metric, [N]; they sum to 1."""
        shares = class_shares(self.labels, self.classes, self.options)
        sizes = np.bincount(self.labels, minlength=self.classes)
        shares = shares * (sizes > 0)
        return (shares / shares.sum() / np.maximum(sizes, 1))[self.labels]

    @cached_property
    def calibration(self) -> tuple[float, float]:
        """The temperature of the scores, and the shift that a calibrated model would then need.

        ``logits / T + log(share_k / n_k)``, with the shares that the metric weighs classes by, has the least log loss.
        The shift is T times how much of ``log(share_k / n_k)`` lies along ``log(n_max / n_k)``.
        """
        shares = class_shares(self.labels, self.classes, self.options)
        log_shares = np.log(np.maximum(shares, 1e-3 / self.classes))
        scores, labels, weights, offsets, first = [], [], [], [], 0
        for logits, own, counts in self.parts:
            some, known, rows = some_rows(logits, own, kind=self.options.kind)
            scores.append(some)
            labels.append(known)
            weights.append(self.weights[first + rows])
            offsets.append(np.broadcast_to(log_shares - np.log(counts), some.shape))
            first += len(own)
        offset = np.concatenate(offsets) if len(offsets) > 1 else offsets[0][0]
        several = np.concatenate(scores) if len(scores) > 1 else scores[0]
        temperature = fit_scale(several, np.concatenate(labels), np.concatenate(weights), offset)
        rarity = -np.log(self.parts[0][2])
        rarity = rarity - rarity.mean()
        along = (log_shares + rarity) @ rarity / (rarity @ rarity) if rarity.any() else 0.0
        return temperature, temperature * float(along)

    @cached_property
    def counts(self) -> np.ndarray:
        """The training samples of each class, [K]; of several parts, the sum."""
        return np.sum([counts for *_, counts in self.parts], axis=0)

    def paths(self, rule: str, logits: Sequence[np.ndarray] | None = None) -> list[GammaPath]:
        """Return each part's path under a rule, of its logits or of others in their place."""
        options, made = self.options, find_path_rule(rule)
        low, high = options.range_of(rule, self.calibration[0] if made.grows else 1.0)
        if self.joined is not None:
            known = self.joined[rule]
            return [known.within((low, min(high, known.range[1])))]
        bias = options.bias if made.multiplies or options.rule == rule else None
        made = replace(made, bias=bias, norms=options.norms if made.needs_norms else None)
        return [
            gamma_path(
                own if logits is None else logits[i],
                labels,
                counts,
                rule=made,
                range=(low, high) if logits is None else (-high, high),  # once scaled, the shift may be negative
                kind=options.kind if logits is None else "logits",
                progress=options.stage("path") if logits is None else None,
            )
            for i, (own, labels, counts) in enumerate(self.parts)
        ]

    def rule_path(self, rule: str) -> RulePath:
        """Return a rule's path over its range, computed once; with `auto`, the shift is pulled."""
        if rule not in self._known:
            pulled = RULES[rule].pulled and self.options.is_auto and self.options.metric in ERRORS
            pull = Pull(self.calibration[1], self.calibration[0]) if pulled else None
            self._known[rule] = RulePath.of(self.paths(rule), self.options, pull=pull)
        return self._known[rule]

    @property
    def reference(self) -> RulePath:
        """The path of the rule that is tried first, on which the metric of any other is measured."""
        return self.rule_path(Shift.name)

    def forget_paths(self) -> None:
        """Let go of the paths of all rules, which take much memory."""
        self._known.clear()

    @cached_property
    def _known(self) -> dict[str, RulePath]:
        return {}


def _check_part(logits: Array, labels: Array, counts: Counts, names: Sequence[str] | None) -> Part:
    """Return one part, checked but for its numbers, which are read chunk by chunk."""
    logits = as_array(logits)
    return logits, *check_samples(logits, labels, counts, names)
