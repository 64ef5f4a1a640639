"""Several labels per sample: one exact shift for each label, chosen on held-out samples, from inputs checked here."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import nan
from statistics import NormalDist, fmean
from typing import Any, ClassVar

import numpy as np

from ..choice import diagnostics
from ..choice.path_metrics import TITLES, check_cost, check_cost_given, shown, value_form
from ..choice.resample import check_replicates, quantiles
from ..choice.tuned import LabelChoice, Tuned
from ..core.class_names import as_mapping, find_classes, in_order, listed
from ..core.class_names import title as class_title
from ..core.counts import Counts
from ..core.rules import AUTO, RULES, Shift
from ..path.curve import METRICS, Curve, accumulate
from ..support.arrays import LARGEST_PROBABILITY, Array, check_finite_rows, described, to_numpy
from ..support.errors import Advice, LevelheadError, check_choice, named, reported_as
from ..support.progress import StageProgress
from ..support.types import Kind, Metric
from ..support.warnings import MissingClassWarning
from .cuts import LabelCuts, cross_fitted_gain, draw_label_gains

SEEN = NormalDist().inv_cdf(
    0.95
)  # standard errors above which a gain over all labels is taken to be one
_SAYS_ALL = ("offsets", "verdict")  # facts whose words need no name before them


class TunedLabels(Tuned):
    """A chosen offset for each label, what `tune_labels` returns: a `Tuned` of the rule `shift` at gamma 1.

    `offset` and `labels` [K] are what was chosen, `curve` the metric over the share of it that is applied. Values and
    gains are means over the labels with positive and negative samples; `missing` are the others. `gain` is
    cross-fitted, and 0 if it is not above that with a probability of 95 %.
    """

    _each: ClassVar = ("for", "label")

    @property
    def title(self) -> str:
        """The title of `curve`."""
        return TITLES[self.metric] if self.metric == "macro_f1" else f"mean {TITLES[self.metric]}"

    def facts(self) -> dict[str, str]:
        """Return the result in words, part by part, with a `verdict` if the model may be better as it is."""
        parts = super().facts()
        if "floors" in parts:
            parts["floors"] = parts["floors"].replace(
                "at gamma = 0 too", "by the model as it is too"
            )
            parts["floors"] = parts["floors"].replace("gamma = 0", "the model as it is")
        source = parts.pop("gamma").partition("chosen on ")[2]
        moved = [label.offset for label in self.labels if label.moved]
        by = f", by {min(moved):+.3g} to {max(moved):+.3g}" if moved else ""
        both = [
            label for label in self.labels if None not in (label.precision_at_zero, label.precision)
        ]
        for name in (
            ("recall", "precision") if both else ()
        ):  # means over the labels predicted before and after
            before, after = (
                fmean(getattr(label, f"{name}{end}") for label in both) for end in ("_at_zero", "")
            )
            parts[f"mean {name}"] = f"{before:.1%} -> {after:.1%}"
        verdict = parts.pop("verdict", "") if moved else "every label is best as it is"
        offsets = f"{len(moved)} of {self.classes} labels moved{by}, chosen on {source}"
        return {"offsets": offsets, **parts, **({"verdict": verdict} if verdict else {})}

    def report(self) -> str:
        """Return the result as text: the numbers, and a line for each label."""
        form = value_form(self.metric)
        width = max(len(class_title(i, self.names)) for i in range(self.classes)) + 2
        heads = ("positives", "offset", "recall", "", "precision", "", TITLES[self.metric], "")
        lines = [f"{'':{width}}" + "".join(f"{head:>12}" for head in heads)]
        for i, label in enumerate(self.labels):
            cells = [str(label.positives), f"{label.offset:+.3f}" if label.moved else "-"]
            if label.value is not None and label.value_at_zero is not None:
                for before, after in (
                    (label.recall_at_zero, label.recall),
                    (label.precision_at_zero, label.precision),
                ):
                    cells += [_percent(before), f"-> {_percent(after)}" if label.moved else ""]
                cells += [
                    f"{label.value_at_zero:{form}}",
                    f"-> {label.value:{form}}" if label.moved else "",
                ]
            lines.append(
                f"{class_title(i, self.names):{width}}" + "".join(f"{cell:>12}" for cell in cells)
            )
        return "\n".join([*(line.rstrip() for line in lines), "", *self._lines()])

    def _lines(self) -> list[str]:
        return [
            words if name in _SAYS_ALL else f"{name} {words}"
            for name, words in self.facts().items()
        ]


def tune_labels(
    logits: Array,
    labels: Array,
    counts: Counts | None = None,
    *,
    metric: Metric = "macro_f1",
    cost: Array | None = None,
    floors: float | Sequence[float] | Mapping[str, float] | None = None,
    chosen_on: str = "held-out",
    bootstrap: int = 500,
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
    training: Array | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    progress: StageProgress | None = None,
) -> TunedLabels:
    """Choose, for each label of a multi-label model, what to add to its logit: ``logit_k + offset_k > 0``.

    Each label has its own threshold, so its metric is computed at every threshold between two of its logits, and the
    offset is the middle of the best ones. The value is the mean over the labels.

    Args:
        logits: [N, K] of samples the model was not trained on, before the sigmoid.
        labels: [N, K], 1 where a sample has the label, else 0. A label without a positive or without a negative sample
            is named in a warning and left alone.
        counts: training samples that have each label, for the record; None counts those given here.
        metric: of each label: `macro_f1` (the F1 of the positives), `balanced_error`, which takes any number of false
            alarms for a rare label that is found, `error`, `mcc`, `kappa`, `g_mean`, or `worst_recall` (the lower of
            the recalls of positives and negatives).
        cost: [2, 2] or [K, 2, 2], row true, column predicted: the metric is then the mean cost.
        floors: least recall of the positives: a number for all labels, one for each, or {label: recall}.
        bootstrap: replicates for the intervals of the gains, which are cross-fitted; 0 for neither. A label is moved
            whatever its own gain: to leave those in doubt alone did worse on new samples. A gain over all labels that
            is not above 0 with a probability of 95 % counts as none.
        kind: `probabilities` if they come after the sigmoid.
        chosen_on, level, rng, training, names, progress: as in `tune`; names are of the labels.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.random((400, 2)) < [0.5, 0.1]
    >>> tuned = tune_labels(2 * labels - [1.0, 3.0] + rng.normal(size=(400, 2)), labels, bootstrap=200)
    >>> [round(offset, 2) for offset in tuned.offset], tuned.worthwhile
    ([0.05, 1.2], True)
    """
    check_choice("metric", metric, METRICS)
    metric = "cost" if cost is not None and metric == "macro_f1" else metric
    check_cost_given(metric, cost)
    check_replicates(bootstrap, level)
    truth = check_label_table(labels)
    size = truth.shape[1]
    if names is not None and len(names) != size:
        raise LevelheadError(f"expected {size}, one per label, got {len(names)}", parameter="names")
    scores = check_label_scores(logits, truth, kind)
    costs = None if cost is None else check_label_costs(cost, size)
    least = np.zeros(size) if floors is None else check_label_floors(floors, truth, names)
    positives = check_label_counts(counts, truth, names)
    usable = np.flatnonzero(truth.any(axis=0) & ~truth.all(axis=0))
    if not len(usable):
        raise LevelheadError(
            "expected a label with positive and negative samples, got none", parameter="labels"
        )
    cuts = {
        int(k): LabelCuts.of(
            scores[:, k], truth[:, k], metric, None if costs is None else costs[k], least[k]
        )
        for k in usable
    }
    generator = np.random.default_rng(rng)
    stage = None if progress is None else partial(progress, "bootstrap")
    gains = draw_label_gains(list(cuts.values()), bootstrap, generator, stage)
    choices = [LabelChoice(positives=int(truth[:, k].sum())) for k in range(size)]
    for row, (k, one) in zip(gains, cuts.items(), strict=True):
        if bootstrap:
            row += cross_fitted_gain(one, scores[:, k], truth[:, k], generator) - row.mean()
        choices[k] = _describe_label(one, row, level)
    # means over the labels, without the offsets and with them, by the metric and others
    losses, errors, balanced = (
        np.stack([replace(one, metric=each).losses[one.ends] for one in cuts.values()], axis=1)
        .mean(axis=1)
        .tolist()
        for each in (metric, "error", "balanced_error")
    )
    total = gains.mean(axis=0)
    gain = float(total.mean()) if bootstrap else losses[0] - losses[1]
    if not any(choice.moved for choice in choices):
        gain, total[:] = 0.0, 0.0
    elif (
        bootstrap and 0 < gain <= SEEN * total.std()
    ):  # of scores that say nothing, half gain that much by chance
        gain, total = 0.0, total - gain
    missing = tuple(k for k in range(size) if k not in cuts)
    absent = [
        f"{k if names is None else f'{k} ({names[k]})'}"
        + (" (no negative)" if truth[:, k].any() else "")
        for k in missing
    ]
    lacking = (
        MissingClassWarning(f"no positive sample here of label {listed(absent)}: left alone")
        if absent
        else None
    )
    warnings = diagnostics.issue_warnings(
        diagnostics.diagnose_training_rows(scores, training), lacking
    )
    curve = _curve_over_share(list(cuts.values()))
    return TunedLabels(
        gamma=1.0,
        interval=None,
        rule=Shift.name,
        task="multilabel",
        kind=kind,
        criterion=metric,
        metric=metric,
        value=shown(metric, losses[1]),
        value_at_zero=shown(metric, losses[0]),
        floors=() if floors is None else tuple(least.tolist()),
        floors_met_at_zero=None
        if floors is None
        else all(one.allowed[one.ends[0]] for one in cuts.values()),
        chosen_on=chosen_on,
        n=len(truth),
        classes=size,
        plateau=(1.0, 1.0),
        curve=curve,
        criterion_curve=curve,
        level=level,
        error=errors[1],
        balanced_error=balanced[1],
        error_at_zero=errors[0],
        balanced_error_at_zero=balanced[0],
        gain=gain,
        gain_interval=quantiles(total, level),
        missing=missing,
        warnings=warnings,
        counts=tuple(positives.tolist()),
        names=None if names is None else tuple(map(str, names)),
        offset=tuple(choice.offset for choice in choices),
        recall=tuple(nan if choice.recall is None else choice.recall for choice in choices),
        recall_at_zero=tuple(
            nan if choice.recall_at_zero is None else choice.recall_at_zero for choice in choices
        ),
        labels=tuple(choices),
    )


def _describe_label(one: LabelCuts, gains: np.ndarray, level: float) -> LabelChoice:
    """Return what is chosen for a label, given replicates of what its offset gains."""
    before, after = one.losses[one.ends].tolist()
    recall_at_zero, recall = one.recall[one.ends].tolist()
    gain = float(gains.mean()) if len(gains) else before - after
    values = shown(one.metric, after), shown(one.metric, before)
    positives, predicted = int(one.above[1, -1]), one.above[:, one.ends]
    at_zero, precision = (
        float(hits / (hits + alarms)) if hits + alarms else None for alarms, hits in predicted.T
    )
    between = quantiles(gains, level)
    return LabelChoice(
        positives, one.offset, *values, recall, recall_at_zero, gain, between, precision, at_zero
    )


def _curve_over_share(cuts: Sequence[LabelCuts]) -> Curve:
    """Return the metric over the share of the offsets that is applied, from 0 to 1, exact."""
    start, at, steps = 0.0, [np.empty(0)], [np.empty(0)]
    for one in cuts:
        now, then = one.ends
        start += one.losses[now] / len(cuts)
        if then != now:
            way = np.arange(now, then, 1 if then > now else -1)  # the cuts left one after the other
            crossed = one.values[way if then > now else way - 1]
            reached = -crossed / one.offset  # there the score is 0, which is not above 0
            at.append(np.clip(np.nextafter(reached, 2.0) if then > now else reached, 0.0, 1.0))
            steps.append(np.diff(np.append(one.losses[way], one.losses[then])) / len(cuts))
    where, changes = np.concatenate(at), np.concatenate(steps)
    order = np.argsort(where, kind="stable")
    curve = accumulate(start, where[order], changes[order], (0.0, 1.0))
    return Curve(curve.gammas, shown(cuts[0].metric, curve.values), curve.end)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def check_multilabel_options(rule: str, criterion: str, **others: Any) -> None:
    """Check that nothing is asked of a multi-label choice that needs classes which compete."""
    if rule not in (
        AUTO,
        *(name for name, known in RULES.items() if known.has_path and not known.multiplies),
    ):
        reason = f"the rule {rule!r} cannot level several labels per sample: scaling never moves the sign of a logit"
        raise LevelheadError(
            f"{reason}; leave it out, and each label is shifted by itself", parameter="rule"
        )
    check_choice("criterion", criterion, ("guided", "balanced_error"))
    for name, value in others.items():
        if value is not None:
            reason = "not for several labels per sample, which do not compete; leave it out"
            raise LevelheadError(reason, parameter=name)


def check_label_table(labels: Any) -> np.ndarray:
    """Return labels [N, K] as bool, after checking that they are 0 or 1."""
    with named("labels"):
        with reported_as("expected 0 or 1 [N, K], got rows of different lengths", ValueError):
            found = to_numpy(labels)
        if found.ndim == 1:
            reason = (
                "expected 0 or 1 for each label of each sample, [N, K], got one value per sample"
            )
            instead = (
                "if they are classes, of which each sample has one, leave out the task multilabel"
            )
            raise LevelheadError(f"{reason}, [{len(found)}]; {instead}")
        if found.ndim != 2 or 0 in found.shape:
            raise LevelheadError(f"expected 0 or 1 [N, K], got shape {list(found.shape)}")
        if found.dtype.kind not in "biuf":
            raise LevelheadError(f"expected 0 or 1, got {described(found)}")
        wrong = (found != 0) & (found != 1)
        if wrong.any():
            raise LevelheadError(f"expected 0 or 1, got {_first(found, wrong)}")
    return found.astype(bool)


def check_label_scores(logits: Array, truth: np.ndarray, kind: Kind) -> np.ndarray:
    """Return logits [N, K] of sigmoids in float64; of probabilities, ``log p / (1 - p)``."""
    # Probabilities of 0 or 1 become as extreme as half of the smallest others.
    check_choice("kind", kind, ("logits", "probabilities"))
    found = to_numpy(logits)
    if found.dtype.kind not in "fiu":
        raise LevelheadError(f"expected numbers, got {described(found)}", parameter="logits")
    if found.shape != truth.shape:
        expected = f"expected one score for each of the labels, {list(truth.shape)}"
        raise LevelheadError(f"{expected}, got shape {list(found.shape)}", parameter="logits")
    found = found.astype(np.float64)
    check_finite_rows(found)
    outside = (found < 0) | (found > LARGEST_PROBABILITY)
    if kind == "probabilities":
        if outside.any():
            advice = Advice("kind", "logits", "if these are logits")
            raise LevelheadError(
                f"expected probabilities, from 0 to 1, got {_first(found, outside)}", advice=advice
            )
        return _log(np.minimum(found, 1.0)) - _log(np.maximum(1 - found, 0.0))
    if not outside.any() and ((found > 0) & (found < 1)).any():
        advice = Advice("kind", "probabilities", "if they come after the sigmoid")
        raise LevelheadError(
            "expected logits, got what looks like probabilities: all are from 0 to 1", advice=advice
        )
    return found


def check_label_costs(cost: Any, labels: int) -> np.ndarray:
    """Return a cost matrix for each label, [K, 2, 2], row true, column predicted: one for all, or one for each."""
    found = to_numpy(cost)
    if found.shape not in ((2, 2), (labels, 2, 2)):
        expected = f"expected numbers [2, 2] or [{labels}, 2, 2], row true, column predicted"
        raise LevelheadError(f"{expected}, got shape {list(found.shape)}", parameter="cost")
    return np.stack([check_cost(one, 2) for one in np.broadcast_to(found, (labels, 2, 2))])


def check_label_floors(floors: Any, truth: np.ndarray, names: Sequence[str] | None) -> np.ndarray:
    """Return the least recall of the positives of each label, [K], 0 for none, given labels [N, K]."""
    size, known = truth.shape[1], truth.any(axis=0)
    found, mapping = np.zeros(size), as_mapping(floors)
    with named("floors"):
        with reported_as(
            f"expected a recall, or a recall for each label, got {floors!r}", TypeError, ValueError
        ):
            if mapping is not None:
                found[find_classes(mapping, size, names, what="floor")] = [
                    float(value) for value in mapping.values()
                ]
            else:
                given = to_numpy(floors).astype(np.float64)
                if given.shape not in ((), (size,)):
                    raise LevelheadError(
                        f"expected a recall, or one for each of {size} labels, got {given.size}"
                    )
                found[:] = np.where(known, given, 0.0) if given.ndim == 0 else given
        outside = found[~((found >= 0) & (found <= 1))]
        if len(outside):
            raise LevelheadError(f"expected recalls from 0 to 1, got {outside[0]:g}")
        unknown = np.flatnonzero((found > 0) & ~known)
        if len(unknown):
            reason = "has no positive sample here, so its recall is not known; leave out its floor"
            raise LevelheadError(f"{class_title(int(unknown[0]), names)} {reason}")
    return found


def check_label_counts(counts: Any, truth: np.ndarray, names: Sequence[str] | None) -> np.ndarray:
    """Return how many training samples have each label, [K]: as given or, of None, as in labels [N, K]."""
    size = truth.shape[1]
    mapping = as_mapping(counts, size)
    found = (
        truth
        if counts is None
        else to_numpy(counts)
        if mapping is None
        else in_order(mapping, size, names)
    )
    if found.ndim == 2 and found.shape[1] == size:
        return check_label_table(found).sum(axis=0).astype(np.float64)
    if found.shape != (size,) or found.dtype.kind not in "iuf":
        expected = f"expected {size}, the training samples that have each label"
        raise LevelheadError(f"{expected}, got {described(found)}", parameter="counts")
    bad = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if len(bad):
        of = class_title(int(bad[0]), names)
        raise LevelheadError(
            f"expected 0 or more samples of {of}, got {found[bad[0]]:g}", parameter="counts"
        )
    return found.astype(np.float64)


def _first(values: np.ndarray, wrong: np.ndarray) -> str:
    """Return the first value that is wrong, with its place."""
    row, column = np.argwhere(wrong)[0]
    return f"{values[row, column]:g} in row {row}, column {column}"


def _log(shares: np.ndarray) -> np.ndarray:
    some = shares[shares > 0]
    return np.log(np.maximum(shares, some.min() / 2 if len(some) else 0.5))
