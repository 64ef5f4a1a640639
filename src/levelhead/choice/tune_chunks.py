"""The choice of gamma on chunks of samples, which are read once or twice, one in memory at a time."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from ..core.array import Array, as_array
from ..core.choices import Kind
from ..core.counts import Counts, resolve
from ..core.errors import Advice, LevelheadError
from ..core.labels import flatten_positions, resolve_labels
from ..path.path import GammaPath
from ..rules.rule import AUTO, RULES, Shift
from .choose import kind_of_scores
from .events import Events
from .frame import Frame
from .options import TuneOptions
from .partial import Chunks, Partial, Tally
from .samples import HeldOut
from .second_pass import SecondPass
from .tune_partial import check_for_chunks, class_prior, plan_second_pass, standard_error, tune_partial
from .tuned import Candidate, Tuned

_CLEARLY = 0.5  # standard errors by which a rule must be better than the shift


def is_summary(given: Any, *, alone: bool = False) -> bool:
    """Return whether this is a path, a partial, or chunks of samples, instead of logits.

    Args:
        given: what came as logits.
        alone: whether no labels came with it, so that any other iterable is taken for chunks.

    >>> is_summary([([[4.0, 2.0]], [0])]), is_summary([(4.0, 2.0)]), is_summary(iter([]))
    (True, False, True)
    >>> is_summary(np.zeros((3, 2, 4, 4)).tolist())  # pixels
    False
    """
    if isinstance(given, GammaPath | Partial | Iterator) or callable(given):
        return True
    if isinstance(given, list | tuple):
        pair = given[0] if given else None
        return isinstance(pair, tuple | list) and len(pair) == 2 and [np.ndim(one) for one in pair] == [2, 1]
    return alone and isinstance(given, Iterable) and not hasattr(given, "shape") and not hasattr(given, "__array__")


def tune_chunks(chunks: Chunks, counts: Counts, options: TuneOptions) -> Tuned:
    """Choose gamma on chunks (logits [n, K], labels [n]), of which one is held in memory at a time.

    Chunks that can be read again (a list, a data set, a function that returns an iterator) are read twice, and the
    choice is exact. An iterator is read once, and the choice is the best on the grid. The rule `auto` is the shift,
    unless RS (or, with norms, tau) is better by more than half a standard error on the grid.

    Args:
        chunks, counts: the samples; the training samples of each class.
        options: of the tuning.

    Returns:
        The choice, as from `tune_partial`.

    >>> chunks = [([[4.0, 2.0], [4.0, 3.0]], [0, 1]), ([[4.0, 1.0]], [1])]
    >>> round(tune_chunks(chunks, [400, 100], TuneOptions(rule="rescale", bootstrap=0)).gamma, 3)
    0.354
    """
    again = callable(chunks) or iter(chunks) is not chunks
    reading = read_pairs(chunks, counts, options)
    first = next(reading, None)
    if first is None:
        raise LevelheadError("expected chunks, each (logits [n, K], labels [n]), got none")

    def summarize(frames: Mapping[str, Frame]) -> dict[str, Partial]:
        tallies: dict[str, Tally] = {rule: Tally(frame) for rule, frame in frames.items()}
        for chunk in chain([first], reading):
            for tally in tallies.values():
                tally.add(*chunk)
        return {rule: tally.partial() for rule, tally in tallies.items()}

    def look(second: SecondPass) -> Events:
        found = Events.joined(second.look(*chunk) for chunk in _grouped(read_pairs(chunks, counts, options)))
        return second.nothing() if found is None else found

    return tune_in_passes(first, counts, options, summarize, look if again else None)


def tune_in_passes(
    some: tuple[Array, Array],
    counts: Counts,
    options: TuneOptions,
    summarize: Callable[[Mapping[str, Frame]], Mapping[str, Partial]],
    look: Callable[[SecondPass], Events] | None,
) -> Tuned:
    """Choose gamma on samples that lie anywhere, in one pass over them or two.

    Args:
        some: logits [n, K] and labels [n] of some samples, from whose scale the range of the shift follows.
        counts, options: as in `tune_chunks`.
        summarize: the first pass: given the frame of each rule to try, the partial of all samples for each.
        look: the second pass: all its events; None if there is no second pass.

    Returns:
        The choice, as from `tune_partial`.

    >>> some = np.array([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]]), np.array([0, 1, 1])
    >>> summarize = lambda frames: {rule: Partial.of(*some, [400, 100], shares=False) for rule in frames}
    >>> options = TuneOptions(rule="rescale", bootstrap=0)
    >>> round(tune_in_passes(some, [400, 100], options, summarize, lambda second: second.look(*some)).gamma, 3)
    0.354
    """
    n = resolve(counts, some[0].shape[1], names=options.names)
    kind = kind_of_scores(some[0], options.kind)
    partials = summarize({rule: _frame(rule, some, n, options) for rule in _rules(options, kind)})
    rule, candidates, why = _choose_rule(partials, options)
    whole = partials[rule]
    if look is not None:
        second = plan_second_pass(
            whole, metric=options.metric, target=options.target, criterion=options.criterion, names=options.names
        )
        found = look(second)
        if not second.agrees(whole, found):
            raise LevelheadError("the samples were not the same when they were read again")
        whole = whole.with_events(found)
    tuned = tune_partial(whole, replace(options, rule=AUTO))
    return replace(tuned, kind=kind, candidates=candidates, why="; ".join(filter(None, [why, tuned.why])))


def read_pairs(chunks: Chunks, counts: Counts, options: TuneOptions) -> Iterator[tuple[Array, np.ndarray]]:
    """Yield each chunk as logits [n, K] and class indices [n], checked; empty ones are left out."""
    given: Iterable = chunks() if callable(chunks) else chunks
    for chunk in given:
        if not isinstance(chunk, tuple | list) or len(chunk) != 2:
            raise LevelheadError(
                f"expected chunks, each (logits [n, K], labels [n]), got {type(chunk).__name__}",
                advice=Advice("labels", None, "where the logits are one array"),
            )
        logits, labels, _ = flatten_positions(*chunk)
        logits = as_array(logits)
        if len(logits):
            yield logits, resolve_labels(logits, labels, counts, options.names)[0]


def _grouped(pairs: Iterable[tuple[Array, np.ndarray]], size: int = 1 << 22) -> Iterator[tuple[Array, np.ndarray]]:
    """Yield small arrays together, about so many numbers at a time: each look has tables of its own."""
    kept: list[tuple[Array, np.ndarray]] = []
    for logits, labels in pairs:
        if kept and (not isinstance(logits, np.ndarray) or logits.dtype != kept[0][0].dtype):
            yield _concatenate(kept)
            kept = []
        kept.append((logits, labels))
        if not isinstance(logits, np.ndarray) or sum(part.size for part, _ in kept) >= size:
            yield _concatenate(kept)
            kept = []
    if kept:
        yield _concatenate(kept)


def _concatenate(pairs: list[tuple[Array, np.ndarray]]) -> tuple[Array, np.ndarray]:
    if len(pairs) == 1:
        return pairs[0]
    return np.concatenate([logits for logits, _ in pairs]), np.concatenate([labels for _, labels in pairs])


def _rules(options: TuneOptions, kind: Kind) -> tuple[str, ...]:
    check_for_chunks(options)
    if options.is_auto and kind == "probabilities":
        return (Shift.name,)
    if options.is_auto:
        able = [rule for rule in RULES.values() if rule.has_path]
        return tuple(rule.name for rule in able if not rule.needs_norms or options.norms is not None)
    if not RULES[options.rule].has_path:
        raise LevelheadError(
            f"expected 'auto', 'rescale', 'tau' or 'shift', got {options.rule!r}, which needs all samples at once",
            parameter="rule",
        )
    return (options.rule,)  # type: ignore[return-value]


def _frame(rule: str, first: tuple[Array, Array], n: np.ndarray, options: TuneOptions) -> Frame:
    """Return the frame of a rule. The range of the shift depends on the scale of the scores of the first chunk."""
    temperature = 1.0
    if RULES[rule].grows and options.range is None:
        temperature = HeldOut.of([(*first, n)], replace(options, target=None)).calibration[0]
    norms = options.norms if RULES[rule].needs_norms else None
    return Frame.of(
        n, rule=rule, range=options.range_of(rule, temperature), norms=norms, kind=options.kind, shares=False
    )


def _choose_rule(partials: Mapping[str, Partial], options: TuneOptions) -> tuple[str, tuple[Candidate, ...], str]:
    """Return the rule with the lowest error on its grid, the first unless clearly beaten; all of them; and why."""
    found = {}
    for rule, whole in partials.items():
        prior = class_prior(whole, options)
        errors = 1 - (prior / np.maximum(whole.sizes, 1)) @ whole.right
        best = int(errors.argmin())
        s = standard_error(whole.right[:, best], whole.sizes, prior)
        found[rule] = (float(whole.frame.edges[best]), float(errors[best]), float(errors[whole.frame.zero]), s)
    chosen = next(iter(found))
    for rule, (_, error, _, s) in found.items():
        if found[chosen][1] - error > _CLEARLY * np.hypot(s, found[chosen][3]):
            chosen = rule
    if len(found) == 1:
        return chosen, (), ""
    candidates = [Candidate(rule, g, value=error, gain=zero - error) for rule, (g, error, zero, _) in found.items()]
    why = f"{chosen}: of {', '.join(found)}, the first that no other beats by more than half a standard error"
    return chosen, tuple(candidates), why
