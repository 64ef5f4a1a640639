"""The choice on samples read in chunks, here or elsewhere: paths without logits, joined; that of `tune`, to the bit."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np

from ..core.adjustment import check_range, target_prior, toward
from ..core.counts import (
    Counts,
    WithBackground,
    check_labels,
    check_samples,
    flatten_positions,
    resolve,
    resolve_labels,
)
from ..core.rules import AUTO, RULES, OneStrength, PerClass, Rule, rule_with
from ..support.arrays import (
    Array,
    KeptRows,
    check_logits,
    most_rows,
    pick_rows,
    raise_masked,
    to_numpy,
)
from ..support.errors import Advice, LevelheadError
from ..support.types import Kind
from .cross_fit import find_winners
from .gamma_path import GammaPath, join_paths
from .paths import path_along
from .samples import Goal, Samples, TuneOptions, as_rows, check_background, rule_options
from .tune import tune_samples
from .tuned import Tuned

Chunk = tuple[Array, Array]  # logits [n, K], labels [n]
_TOGETHER = 1 << 22  # numbers: smaller chunks are read together
_WIDE, _SPREADS = (
    8.0,
    4.0,
)  # the largest temperature whose range is covered, at least; and in spreads of the logits


@dataclass(frozen=True, eq=False)
class RowSample:
    """Rows of logits drawn by lot, which can be joined: those with the smallest numbers of all."""

    rows: np.ndarray  # [m], ascending
    lots: np.ndarray  # [m], the number that each has drawn
    values: np.ndarray  # [m, K], their logits
    size: int  # N, of which they are drawn

    def at_most(self, most: int) -> "RowSample":
        """Return so many of the rows, those with the smallest numbers."""
        if len(self.rows) <= most:
            return self
        kept = np.sort(np.argpartition(self.lots, most - 1)[:most])
        return RowSample(self.rows[kept], self.lots[kept], self.values[kept], self.size)

    def joined(self, other: "RowSample") -> "RowSample":
        """Return the rows of both, with those of the other after these."""
        rows = np.concatenate([self.rows, other.rows + self.size])
        lots, values = (
            np.concatenate([self.lots, other.lots]),
            np.concatenate([self.values, other.values]),
        )
        return RowSample(rows, lots, values, self.size + other.size)


@dataclass(frozen=True, eq=False)
class ChunkPath:
    """What a choice needs to know of a chunk of samples instead of its logits. It can be pickled, and kept.

    Args:
        paths: {rule: path}, without logits; with every change of every prediction unless that was left out.
        winners, true: [n], the class of each row's largest logit, and the logit of its own class.
        some: rows of the logits, as many as a temperature needs.
        names: of the classes, where they are known.
    """

    paths: Mapping[str, GammaPath]
    winners: np.ndarray
    true: np.ndarray
    some: RowSample
    names: Sequence[str] | None = None


def tune_chunks(
    chunks: Iterable[Chunk | ChunkPath] | Callable[[], Iterable[Chunk]],
    counts: Counts,
    *,
    metric: str | Goal = "balanced_error",
    rule: str | Rule = AUTO,
    target: Array | None = None,
    unlabelled: Array | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    chosen_on: str = "held-out",
    bootstrap: int = 500,
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
) -> Tuned:
    """Choose a rule and its gamma on chunks of samples, as `tune` does on all of them at once.

    One chunk of logits is in memory at a time. What is kept takes about 100 to 140 bytes a sample for one rule, twice
    that for `auto`, and for a moment, when the chunks are joined, twice as much again. Of more than 10^8 samples take a
    part: its interval is narrow enough.

    Args:
        chunks: (logits [n, K], labels [n]) each, one after another; or what `chunk_path` made of them elsewhere. Of a
            list, a data set or a function that returns an iterator, gamma and its interval are those of `tune`, to the
            bit; of more than 20,000 samples (fewer, if classes are more than 100) it is read again, for the rows that
            the temperature of the scores is fitted on. An iterator is read once, and that temperature is then of other
            rows, which may move the end of the shift's range.
        rule: `auto`, `shift`, `rescale` or an object of `lh.rules`. RS then shift, vector scaling and a bias that is
            kept need all logits at once.
        counts, metric, target, unlabelled, names, kind, chosen_on, bootstrap, level, rng: as in `tune`.

    >>> chunks = [([[4.0, 2.0], [4.0, 3.0]], [0, 1]), ([[4.0, 1.0]], [1])]
    >>> round(tune_chunks(chunks, [400, 100], rule="rescale", bootstrap=0).gamma, 3)
    0.354
    """
    background = counts.background if isinstance(counts, WithBackground) else None
    same: dict[str, Any] = {
        "target": target,
        "names": names,
        "kind": kind,
    }  # for the choice and for each chunk
    given = (
        rule_options(rule)
        | same
        | {"goal": Goal.of(metric), "unlabelled": unlabelled, "background": background}
    )
    options = TuneOptions(chosen_on=chosen_on, bootstrap=bootstrap, level=level, rng=rng, **given)
    check_background(options.background, options.rule)
    if options.estimates_target:
        reason = "an estimate needs all samples at once; give what priors.estimate_prior says"
        raise LevelheadError(reason, parameter="target")
    with_changes = options.follows_predictions
    again = callable(chunks) or iter(chunks) is not chunks

    def read() -> Iterator[Chunk | ChunkPath]:
        return _read(chunks() if callable(chunks) else chunks)

    parts, some, given_paths = [], None, False
    for chunk in read():
        if isinstance(chunk, ChunkPath):
            part, given_paths = chunk, True
        else:
            part = chunk_path(*chunk, counts, rule=rule, with_changes=with_changes, **same)
        some = part.some if some is None else some.joined(part.some)
        some = some.at_most(
            most_rows(part.some.values.shape[1])
        )  # rows of all chunks would be all logits
        parts.append(replace(part, some=part.some.at_most(0)))
    if some is None:
        raise LevelheadError(
            "expected chunks, each (logits [n, K], labels [n]), got none", parameter="chunks"
        )
    paths = {}
    for name in [name for name in parts[0].paths if all(name in part.paths for part in parts)]:
        each = [part.paths[name] for part in parts]
        reach = max(path.range[0] for path in each), min(path.range[1] for path in each)
        paths[name] = join_paths([path.within(reach) for path in each])
    winners, true = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("winners", "true")
    )
    known, classes = parts[0].names, some.values.shape[1]
    del parts
    one = next(iter(paths.values()))
    wanted = _rules(rule, kind, alone=background is not None)
    n = resolve(counts, classes, names=known)
    _check_paths(paths, wanted, n, options, with_changes)
    rows, values = some.rows, some.values
    if again and not given_paths and len(rows) < some.size:
        rows = pick_rows(some.size, classes)
        values = _gather(read(), rows, one.labels, counts, known)  # type: ignore[arg-type]
    kept = KeptRows(rows, values, winners.astype(np.int64), true)
    joined = {
        name: replace(path, labels=one.labels, logits=(kept,)) for name, path in paths.items()
    }
    options = replace(options, names=known if names is None else names)
    tuned = tune_samples(Samples(((kept, one.labels, n),), options, joined))
    *most, last = (one.name for one in RULES.values() if isinstance(one, PerClass))
    note = f"{', '.join(most)} and {last} need all logits at once and were not tried"
    return replace(tuned, why=f"{tuned.why}; {note}") if options.is_auto else tuned


def chunk_path(
    logits: Array,
    labels: Array,
    counts: Counts,
    *,
    rule: str | Rule = AUTO,
    target: Array | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    with_changes: bool = True,
) -> ChunkPath:
    """Return what `tune_chunks` needs to know of a chunk, but for its logits: on any machine, for any goal.

    Args:
        logits, labels: [n, K] and [n], or of tokens or pixels.
        counts, rule, target, names, kind: as they will be given to `tune_chunks`.
        with_changes: whether to find every change of every prediction too. Without, it takes about two thirds of the
            time, and is enough for one rule with the metrics `g_mean`, `worst_recall` or, with the criterion
            `balanced_error`, an error.
    """
    logits, labels, names = as_rows(logits, labels, counts, names)
    n = resolve(counts, logits.shape[1], names=names)
    found, n = check_samples(logits, labels, n, names)
    prior, paths = None if target is None else target_prior(target, len(n), names), {}
    some = raise_masked(check_logits(to_numpy(logits[:1000]), kind=kind).astype(np.float64))
    spread = float(np.std(some - some.mean(axis=1, keepdims=True)))
    largest = max(_WIDE, _SPREADS * spread)  # of all samples, hardly exceeded
    for made in _rules(rule, kind, alone=isinstance(counts, WithBackground)):
        reach = made.range_at(largest if made.grows else 1.0)
        toward_it = prior if made.follows_target else None
        how: dict[str, Any] = {"with_changes": with_changes, "target": toward_it, "kind": kind}
        paths[made.name] = replace(
            path_along(made, logits, found, n, check_range(reach), **how), logits=()
        )
    true = to_numpy(logits[np.arange(len(found)), found])
    lots = np.random.default_rng(
        [crc32(found.tobytes()), crc32(np.ascontiguousarray(true).tobytes())]
    )
    every = RowSample(
        np.arange(len(found)), lots.random(len(found)), np.zeros((len(found), 0)), len(found)
    )
    few = every.at_most(most_rows(len(n)))
    winners = find_winners(logits, kind).astype(np.int32)
    return ChunkPath(paths, winners, true, replace(few, values=to_numpy(logits[few.rows])), names)


def _rules(rule: str | Rule, kind: Kind, *, alone: bool) -> list[OneStrength]:
    """Return the rules of one strength to try, each with what it needs; `alone` if a class is left alone."""
    asked = rule_with(rule)
    norms = getattr(asked, "norms", None)
    if getattr(asked, "bias", None) is not None:
        raise LevelheadError(
            "a kept bias needs all samples at once; leave it out", parameter="bias"
        )
    able = [one for one in RULES.values() if isinstance(one, OneStrength)]
    if asked.name == AUTO:
        able = [one for one in able if norms is not None or not one.needs_norms]
        able = [one for one in able if one.follows_counts or not alone]
        able = [one for one in able if kind != "probabilities" or not one.multiplies]
    elif isinstance(asked, OneStrength):
        able = [asked]
    else:
        known = ", ".join(repr(one.name) for one in able)
        reason = f"expected 'auto', {known}, got {asked.name!r}, which needs all samples at once"
        raise LevelheadError(reason, parameter="rule")
    return [
        replace(one, range=asked.range, norms=norms if one.needs_norms else None) for one in able
    ]


def _read(chunks: Iterable[Any]) -> Iterator[Chunk | ChunkPath]:
    """Yield each chunk as logits [n, K] and labels [n], small ones together; empty ones are left out."""
    waiting: list[tuple[np.ndarray, np.ndarray]] = []
    for chunk in chunks:
        if isinstance(chunk, ChunkPath):
            yield chunk
            continue
        _check_chunk(chunk)
        logits, labels, _ = flatten_positions(*chunk)
        plain = isinstance(logits, np.ndarray) and logits.ndim == 2 and np.ndim(labels) == 1
        if waiting and not (
            plain
            and (logits.dtype, logits.shape[1]) == (waiting[0][0].dtype, waiting[0][0].shape[1])
        ):
            yield _together(waiting)
            waiting = []
        if not len(logits):
            continue
        if not plain or (not waiting and logits.size >= _TOGETHER):
            yield logits, labels
            continue
        waiting.append(
            (logits.copy(), to_numpy(labels).copy())
        )  # the next chunk may be read into the same array
        if sum(part.size for part, _ in waiting) >= _TOGETHER:
            yield _together(waiting)
            waiting = []
    if waiting:
        yield _together(waiting)


def _together(pairs: list[tuple[np.ndarray, np.ndarray]]) -> Chunk:
    return np.concatenate([logits for logits, _ in pairs]), np.concatenate(
        [labels for _, labels in pairs]
    )


def _check_chunk(chunk: Any) -> None:
    if isinstance(chunk, bytes):
        instead = "tune again with lh.tune_chunks, on the samples themselves"
        reason = f"bytes, of a Partial of an older levelhead, are not read any more; {instead}"
        raise LevelheadError(reason, parameter="chunks")
    if not isinstance(chunk, tuple | list) or len(chunk) != 2:
        reason = f"expected chunks, each (logits [n, K], labels [n]), got {type(chunk).__name__}"
        advice = Advice("labels", None, "where the logits are one array")
        raise LevelheadError(reason, parameter="chunks", advice=advice)


def _check_paths(
    paths: Mapping[str, GammaPath],
    wanted: list[OneStrength],
    counts: np.ndarray,
    options: TuneOptions,
    changes: bool,
) -> None:
    """Check that paths, which may have been made elsewhere, have what is asked for: also changes, or not."""
    for rule in wanted:
        if rule.name not in paths:
            raise LevelheadError(
                f"not every chunk has a path of the rule {rule.name!r}", parameter="rule"
            )
        path = paths[rule.name]
        if options.kind != path.kind:
            raise LevelheadError(
                f"the paths of the chunks are of {path.kind}, got {options.kind!r}",
                parameter="kind",
            )
        target = (
            None
            if options.target is None
            else target_prior(options.target, len(counts), options.names)
        )
        moved = toward(counts, target if rule.follows_target else None)
        if not np.array_equal(rule.direction(moved, kind=path.kind).ratios, path.rule.ratios):
            reason = (
                "they, or the target, are not those that the paths of the chunks were made with"
            )
            raise LevelheadError(reason, parameter="counts")
        low, high = path.range
        if options.range is not None and not low <= options.range[0] < options.range[1] <= high:
            known = f"the paths of the chunks are of gamma {low:g} to {high:g}"
            raise LevelheadError(f"{known}, got {options.range}", parameter="range")
        if changes and path.changes is None:
            raise LevelheadError(
                "this needs paths of chunks that were made with_changes", parameter="chunks"
            )


def _gather(
    chunks: Iterable[Chunk], rows: np.ndarray, labels: np.ndarray, counts: Counts, names: Any
) -> np.ndarray:
    """Return the logits of some rows [m, K], read again."""
    found, known, first = [], [labels[:0]], 0
    for logits, given in chunks:
        found.append(to_numpy(logits[rows[(first <= rows) & (rows < first + len(logits))] - first]))
        known.append(check_labels(resolve_labels(logits, given, counts, names)[0], logits.shape[1]))
        first += len(logits)
    if not np.array_equal(np.concatenate(known), labels):
        raise LevelheadError(
            "the samples were not the same when they were read again", parameter="chunks"
        )
    return np.concatenate(found)
