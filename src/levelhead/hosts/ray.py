"""Ray Data: gamma chosen on a data set that lies on many machines, with the samples left where they are.

Each batch becomes a `Partial`; partials are added where they are, and the sum, of a few megabytes, comes to the driver.
A second pass over the batches makes the choice exact. Ray runs the tasks of a lost worker again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..choice.events import Events
from ..choice.frame import Frame
from ..choice.goal import Goal
from ..choice.options import TuneOptions, rule_options
from ..choice.partial import Partial, empty_partial
from ..choice.second_pass import SecondPass
from ..choice.tune_chunks import tune_in_passes
from ..choice.tuned import Tuned
from ..core.array import Array
from ..core.choices import Criterion, Kind, Metric
from ..core.counts import Counts
from ..core.errors import LevelheadError
from ..core.extras import naming_what_is_missing
from ..rules.rule import rule_with
from .batches import read_batch

with naming_what_is_missing():
    from ray.data import Dataset

_NUMBERS = 1 << 25  # logits of a batch, about: 128 MB of float32
_ADDED = 16  # partials that are added in one task


def tune_dataset(
    dataset: Dataset,
    counts: Counts,
    *,
    logits: str = "logits",
    labels: str = "labels",
    exact: bool = True,
    metric: Metric = "balanced_error",
    criterion: Criterion = "guided",
    rule: str = "auto",
    range: tuple[float, float] | None = None,
    target: Array | None = None,
    chosen_on: str = "held-out",
    bootstrap: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
    norms: Array | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    batch_size: int | None = None,
) -> Tuned:
    """Choose a rule and its strength on a Ray data set of held-out samples.

    Args:
        dataset: with a column of logits, K numbers in each row, and a column of class indices.
        counts: training samples of each class.
        logits, labels: the names of the columns.
        exact: whether to read the data set a second time, for the choice that all samples at once would give. Without,
            the choice is the best on a grid, and `why` says how far off it can be.
        metric: `balanced_error` or `error`.
        criterion, range, target, chosen_on, bootstrap, level, rng, norms, names, kind: as in `tune`.
        rule: `rescale`, `tau`, `shift`, or `auto`: the shift, unless another is clearly better.
        batch_size: rows in a batch; by default about 32 million numbers.

    Returns:
        The choice, as `tune` gives it for chunks.

    >>> import inspect
    >>> inspect.signature(tune_dataset).parameters["exact"].default
    True
    """
    options = TuneOptions(
        goal=Goal(metric, criterion=criterion),
        target=target,
        chosen_on=chosen_on,
        bootstrap=bootstrap,
        level=level,
        rng=rng,
        names=names,
        kind=kind,
        **rule_options(rule_with(rule, range=range, norms=norms)),
    )
    head = dataset.take_batch(min(1000, batch_size or 1000), batch_format="numpy")
    some = read_batch(head, logits=logits, labels=labels)
    if not len(some[1]):
        raise LevelheadError("expected samples, got none", parameter="dataset")
    columns = {"logits": logits, "labels": labels}
    rows = batch_size or max(1, _NUMBERS // some[0].shape[1])

    def summarize(frames: Mapping[str, Frame]) -> dict[str, Partial]:
        found = _reduce(dataset, _Summarize(dict(frames), columns), _AddPartials(), rows)
        return {rule: Partial.from_bytes(data) for rule, data in found.items()}

    def look(second: SecondPass) -> Events:
        found = _reduce(dataset, _Look(second, columns), _AddEvents(), rows)
        return Events.from_bytes(found["events"]) if found else second.nothing()

    return tune_in_passes(some, counts, options, summarize, look if exact else None)


def summarize_dataset(
    dataset: Dataset,
    counts: Counts,
    *,
    rule: str = "rescale",
    range: tuple[float, float] | None = None,
    bins: int | None = None,
    norms: Array | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    shares: bool = False,
    logits: str = "logits",
    labels: str = "labels",
    batch_size: int | None = None,
) -> Partial:
    """Summarize a Ray data set: the partial of all its samples.

    Args:
        dataset, logits, labels, batch_size: as in `tune_dataset`.
        counts, rule, range, bins, norms, names, kind, shares: as in `Partial.empty`.

    Returns:
        The partial, which can be kept, added to that of another day's samples, and tuned.

    >>> import inspect
    >>> inspect.signature(summarize_dataset).parameters["rule"].default
    'rescale'
    """
    frame = Frame.of(counts, rule=rule, range=range, bins=bins, norms=norms, names=names, kind=kind, shares=shares)
    rows = batch_size or max(1, _NUMBERS // frame.classes)
    columns = {"logits": logits, "labels": labels}
    found = _reduce(dataset, _Summarize({rule: frame}, columns), _AddPartials(), rows)
    return Partial.from_bytes(found[rule]) if found else empty_partial(frame)


def _reduce(dataset: Dataset, summarize: Any, add: Any, rows: int) -> dict[Any, bytes]:
    """Return {key: bytes}: batches summarized and added up in tasks, and what is left of that here."""
    few = dataset.map_batches(summarize, batch_size=rows, batch_format="numpy", zero_copy_batch=True)
    few = few.map_batches(add, batch_size=_ADDED, batch_format="numpy")
    total: dict[Any, bytes] = {}
    for batch in few.iter_batches(batch_size=_ADDED, batch_format="numpy"):
        both = {name: [*batch[name], *last] for name, last in (("key", total.keys()), ("data", total.values()))}
        added = add(both)
        total = dict(zip(added["key"], added["data"], strict=True))
    return total


@dataclass(frozen=True)
class _Summarize:
    """Make the partial of a batch for each rule."""

    frames: Mapping[str, Frame]
    columns: Mapping[str, str]

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list]:
        pair = read_batch(batch, **self.columns)
        pairs = [pair] if len(pair[1]) else []
        partials = {rule: empty_partial(frame).extended(pairs) for rule, frame in self.frames.items()}
        return {"key": list(partials), "data": [partial.to_bytes() for partial in partials.values()]}


@dataclass(frozen=True)
class _Look:
    """Make the second pass over a batch."""

    second: SecondPass
    columns: Mapping[str, str]

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list]:
        return {"key": ["events"], "data": [self.second.look(*read_batch(batch, **self.columns)).to_bytes()]}


class _AddPartials:
    """Add the partials of each rule."""

    def __call__(self, batch: dict[str, Any]) -> dict[str, list]:
        sums: dict[str, Partial] = {}
        for key, data in zip(batch["key"], batch["data"], strict=True):
            one = Partial.from_bytes(data)
            sums[str(key)] = sums[str(key)] + one if key in sums else one
        return {"key": list(sums), "data": [partial.to_bytes() for partial in sums.values()]}


class _AddEvents:
    """Join events."""

    def __call__(self, batch: dict[str, Any]) -> dict[str, list]:
        found = Events.joined(Events.from_bytes(data) for data in batch["data"])
        return {"key": [] if found is None else ["events"], "data": [] if found is None else [found.to_bytes()]}
