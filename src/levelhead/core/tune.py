"""From held-out scores to a `Tuned`, in five steps: check, fit, predict, judge, say.

1. What was given is checked, once (`samples.py`).
2. The rule is fitted without each of three folds, and on all samples (`rules.py`).
3. Every sample is predicted as the model is, and by a fit that has not seen it (`predict.py`).
4. Both predictions are judged by the metric (`judge.py`).
5. The fit on all samples is what is chosen; the judgement says what it is worth (`tuned.py`).

`tune` and `tune_folds` do step 1 and call `tune_given`, which is the other four on one screen; `make_tuned` is
the last of them. The data on this road: logits [N, K] and labels [N] as users have them; a `Given`, in which they
fit together; `Samples` with folds; `Fits`, an `Adjustment` without each fold and one on all; `Outcomes`, how often
(true, before, after) occurs; `Evidence`; `Tuned`.

The folds are there for honesty alone: what is chosen is fitted on all samples, and each sample judges a fit that
it had no part in. So the gain is that of fits on two thirds of the samples, if anything less than the chosen one's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..support.arrays import Array, to_numpy
from ..support.errors import Advice, LevelheadError
from ..support.progress import StageProgress
from ..support.types import Kind
from .adjustment import Adjustment, Fits
from .arguments import check_chosen_on, check_level
from .calibration import fit_temperature, some_rows
from .constant_direction import check_features, find_reach
from .counts import Counts
from .doubts import doubts_about, issue_warnings
from .evidence import Evidence
from .floors import Floor, holds_with
from .goal import Goal
from .judge import judge
from .metrics import Metric, Tables
from .predict import predict_all
from .priors import ESTIMATE, PriorEstimate, check_is_estimate, estimate_target
from .rules import DEFAULT, Rule, find_rule
from .samples import Given, Samples
from .tuned import Tuned


def tune(
    logits: Array,
    labels: Array,
    counts: Counts | None = None,
    *,
    metric: str | Metric | Goal = "balanced_error",
    rule: str | Rule = DEFAULT,
    target: Array | None = None,
    unlabelled: Array | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    training: Array | None = None,
    features: Array | None = None,
    chosen_on: str = "held-out",
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
    progress: StageProgress | None = None,
) -> Tuned:
    """Choose what to do to each class's score, on held-out data, and say what that is worth.

    By default a number is added to the score of each class: ``score_k = logit_k + offset_k``. It is
    fitted by log loss, held near what the counts ask for, and then moved by the metric. Nothing of
    the model is needed but its scores; ``tuned.apply(scores)`` adjusts those of new samples, and
    `adjust_` the model itself.

    Args:
        logits: [N, K] of samples the model was not trained on. They may be imbalanced. Or of tokens
            [N, T, K] or pixels [N, K, H, W], with labels [N, T] or [N, H, W], of which -100 is left
            out; intervals then take positions for independent samples and are too narrow.
        labels: [N], class indices, or names that `names` or the keys of counts list in class order.
        counts: training samples of each class, as the loss saw them: after resampling, or times
            the class weights; with `lh.counts.with_background`, of which one class is left alone.
            Without them, those of the labels stand in: draw the hold-out like the training set.
        metric: what the choice is to be good at: a name, a `Metric`, or a `Goal`, which has costs
            and floors.
        rule: `offsets`; `shift` (``l_k + s log r_k``, r_k = n_max / n_k), `rescale` (``l_k r_k^s``,
            the paper's RS), `tau` (``l_k / ||w_k||^s``), `scales` or `vector`; or an object of
            `lh.rules`, such as ``Tau(norms=head.norms)`` or ``Shift(range=(0, 8))``.
        target: [K] or {class: share}, how often classes occur in deployment, which weighs them in
            the metric. Or `estimate`, from the unlabelled samples, by EM.
        unlabelled: [M, K], logits of deployment data, for that estimate.
        names: class names, for counts given by name and for messages. Without them, the titles of a
            data frame's columns, where these are words.
        kind: `logits`, or `probabilities`, whose logarithms are adjusted. `log-probabilities` are
            recognized without it.
        training: [M, K], training logits, for a warning if held-out rows are among them.
        features: [N, d], the inputs of a head without a bias. `adjust_` with the same features puts
            offsets into its weights. The choice is then judged by what arrives of them in the
            logits; `reach` of the result says how much that is.
        chosen_on: what the data are, for the record. "test" is printed wherever the result is.
        level: of the interval of the gain.
        rng: a generator, or a seed, by which samples are dealt into folds.
        progress: called with (stage, how much of it is done, how much it is in all).

    Returns:
        A `Tuned`: the adjustment that was chosen, and on samples that no fit has seen the gain, its
        interval, and recall and precision of every class before and after.

    Raises:
        LevelheadError: an argument that does not fit the others, such as labels beyond the classes,
            counts of another length, probabilities that are called logits, or floors that no offsets
            meet. It says what was expected, what came, and what to do.

    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat([0, 1, 2], [300, 60, 40])
    >>> logits = 2 * np.eye(3)[labels] + rng.normal(size=(400, 3)) + np.log([1000, 200, 40])
    >>> tuned = tune(logits, labels, [1000, 200, 40])
    >>> tuned.rule, tuned.worthwhile, tuned.verdict
    ('offsets', True, 'better')
    """
    # Step 1; the other four are the same for folds, comparisons and the command line.
    given = Given.of(logits, labels, counts, names=names, kind=kind)
    return tune_given(
        given,
        Goal.of(metric),
        find_rule(rule),
        target=target,
        unlabelled=unlabelled,
        training=training,
        features=features,
        chosen_on=chosen_on,
        level=level,
        rng=rng,
        progress=progress,
    )


def tune_given(
    given: Given,
    goal: Goal,
    rule: Rule,
    *,
    target: Array | Mapping[object, float] | str | None = None,
    unlabelled: Array | None = None,
    training: Array | None = None,
    features: Array | None = None,
    chosen_on: str = "held-out",
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
    progress: StageProgress | None = None,
) -> Tuned:
    """Choose on samples that are checked: what `tune`, `tune_folds` and the command line share.

    Args:
        given: the samples, checked against each other.
        goal: what the choice is to be good at, not yet made one of these samples.
        rule: by which to choose.
        target, unlabelled, training, features, chosen_on, level, rng, progress: as in `tune`.
    """
    # Check what is not checked yet, and make the goal one of these samples.
    level = check_level(level)
    check_chosen_on(chosen_on)
    prior = None
    if isinstance(target, str):
        prior = _estimate(target, unlabelled, given, level)
        target = prior.target
    elif unlabelled is not None:
        reason = "these are for a target that is estimated; leave them out"
        advice = Advice("target", ESTIMATE, "to use them")
        raise LevelheadError(reason, parameter="unlabelled", advice=advice)
    reach = None
    if features is not None:
        reach = _reach_of(features, rule, len(given.labels))
    goal = goal.on(given.labels, len(given.counts), given.names, target)

    # Fit, on all samples or on a part of very many. One generator draws the part, then deals the folds.
    generator = np.random.default_rng(rng)
    rows = given.part(generator)
    samples = given.samples(rows, generator)
    if progress is not None:
        progress("fit", 0, 1)
    fits = rule.fit(samples, goal)
    if progress is not None:
        progress("fit", 1, 1)

    # Predict, judge, and say what came of it.
    outcomes = predict_all(given, samples, rows, fits, reach)
    evidence = judge(outcomes, goal, level)
    return make_tuned(
        given,
        samples,
        goal,
        rule,
        fits,
        evidence,
        warnings=issue_warnings(doubts_about(given, outcomes, goal, rule, training)),
        chosen_on=chosen_on,
        prior=prior,
        reach=reach,
        rows=rows,
    )


def tune_folds(
    folds: Sequence[tuple[Array, Array, Counts]],
    *,
    metric: str | Metric | Goal = "balanced_error",
    rule: str | Rule = DEFAULT,
    target: Array | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
) -> Tuned:
    """Choose on the out-of-fold scores of cross-validation, each fold with its counts.

    The scores of all folds are pooled, and so are their counts; `chosen_on` is "out-of-fold". Every
    sample is then held out, and none need be set aside for the choice. It is meant for a model that is
    trained on all of them afterward, like those of the folds.

    Args:
        folds: (logits [N, K], labels [N], counts) of each fold, of samples its model was not
            trained on; counts may be None.
        metric, rule, target, names, kind, level, rng: as in `tune`.

    Returns:
        A `Tuned`, as of `tune` on all samples.

    Raises:
        LevelheadError: no folds, one that is no such triple, folds that differ in their classes, the
            order of these, the background or the kind of their scores, or whatever `tune` refuses.

    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat([0, 1], [150, 50])
    >>> draw = lambda: 2 * np.eye(2)[labels] + rng.normal(size=(200, 2)) + np.log([600, 200])
    >>> tuned = tune_folds([(draw(), labels, [600, 200]), (draw(), labels, [600, 200])])
    >>> tuned.chosen_on, tuned.n
    ('out-of-fold', 400)
    """
    triples = []
    if isinstance(folds, Iterable):
        triples = list(folds)
    if not triples or not all(isinstance(fold, Sequence) and len(fold) == 3 for fold in triples):
        expected = "expected at least one fold, each (logits [N, K], labels [N], counts)"
        raise LevelheadError(expected, parameter="folds")
    parts = []
    for logits, labels, counts in triples:
        parts.append(Given.of(logits, labels, counts, names=names, kind=kind))
    # Each fold is checked by itself above, and here against the others.
    _check_alike(parts)
    # One set of samples: counts add up, as if one model had seen all that the models of the folds saw.
    labels = np.concatenate([part.labels for part in parts])
    counts = np.sum([part.counts for part in parts], axis=0)
    if all(part.counted for part in parts):
        # A class has a count of 1 in each fold that lacks it, and here in all of them together.
        counts = np.maximum(np.bincount(labels, minlength=len(counts)), 1)
    joined = replace(
        parts[0],
        logits=np.concatenate([to_numpy(part.logits) for part in parts]),
        labels=labels,
        counts=counts,
        names=next((part.names for part in parts if part.names is not None), None),
        counted=any(part.counted for part in parts),
    )
    return tune_given(
        joined,
        Goal.of(metric),
        find_rule(rule),
        target=target,
        chosen_on="out-of-fold",
        level=level,
        rng=rng,
    )


def _check_alike(folds: Sequence[Given]) -> None:
    """Raise LevelheadError unless folds have the same classes in one order, and scores of one kind."""
    sizes = sorted({len(fold.counts) for fold in folds})
    if len(sizes) > 1:
        came = f"folds of {', '.join(map(str, sizes))} classes"
        reason = f"expected the same classes in every fold, got {came}"
        raise LevelheadError(reason, parameter="folds")
    # Where names are not known, labels are positions, which contradict no name.
    named = [fold.names for fold in folds if fold.names is not None]
    for names in named:
        for i, (name, other) in enumerate(zip(named[0], names, strict=True)):
            if name != other:
                got = f"class {i} is {name!r} in one and {other!r} in another"
                reason = f"expected the classes of every fold in one order, but {got}"
                raise LevelheadError(reason, parameter="folds")
    first = folds[0]
    for fold in folds:
        if fold.background != first.background:
            reason = "expected the same background in every fold, or in none"
            raise LevelheadError(reason, parameter="folds")
        if fold.kind != first.kind:
            reason = f"expected one kind of scores in all, got {first.kind} and {fold.kind}"
            raise LevelheadError(reason, parameter="folds")


def _reach_of(features: Array, rule: Rule, samples: int) -> np.ndarray:
    """Return how much of each offset arrives in the scores of every sample, [N].

    Args:
        features: [N, d], what the head takes.
        rule: which must add something; a rule that only multiplies needs no bias.
        samples: N.
    """
    if not rule.adds:
        reason = f"the rule {rule.name} adds nothing, so a head needs no bias for it"
        raise LevelheadError(f"{reason}; leave them out", parameter="features")
    return find_reach(check_features(features, samples=samples))[1]


def make_tuned(
    given: Given,
    samples: Samples,
    goal: Goal,
    rule: Rule,
    fits: Fits,
    evidence: Evidence | None,
    *,
    warnings: tuple[str, ...],
    chosen_on: str,
    prior: PriorEstimate | None = None,
    n: int | None = None,
    reach: np.ndarray | None = None,
    rows: np.ndarray | None = None,
) -> Tuned:
    """Put together what was chosen, what it is worth, and where it comes from.

    Args:
        given: all samples that were given.
        samples: those that the rule was fitted on.
        goal: what was chosen for, for these samples.
        rule: by which.
        fits: what was fitted; the one on all samples is chosen.
        evidence: what that is worth.
        warnings: that were issued.
        chosen_on: what the samples are.
        prior: what the target was estimated from.
        n: how many samples there were; those given if None.
        reach: [N], how much of an offset arrives in the scores of each sample given.
        rows: which of the given samples `samples` has; None if all.
    """
    # The reach of the samples that were fitted on, for their floors; its mean and spread, for the record.
    reach_of_samples = reach
    if reach is not None and rows is not None:
        reach_of_samples = reach[rows]
    reach_in_short = None
    if reach is not None:
        reach_in_short = (float(reach.mean()), float(reach.std()))
    names = None
    if given.names is not None:
        names = tuple(map(str, given.names))
    target = None
    if goal.target is not None:
        target = tuple(goal.target.tolist())
    # Of chunks, more samples were judged than are given here.
    if n is None:
        n = len(given.labels)
    return Tuned(
        rule=rule.name,
        adjustment=fits.whole,
        evidence=evidence,
        strength=fits.strength,
        counts=tuple(map(float, given.counts_of_rules)),
        counted=given.counted,
        names=names,
        kind=given.kind,
        chosen_on=chosen_on,
        n=n,
        temperature=temperature_after(samples, goal, fits.whole, reach_of_samples),
        target=target,
        floors=_floors(samples, goal, fits.whole, evidence, reach_of_samples),
        prior=prior,
        warnings=warnings,
        background=given.background,
        reach=reach_in_short,
    )


def temperature_after(
    samples: Samples, goal: Goal, adjustment: Adjustment, reach: np.ndarray | None = None
) -> float:
    """Return the temperature at which adjusted scores are calibrated, as the goal weighs classes.

    Adjusted scores are for the mix of classes that the goal is about. So samples weigh as if they came in
    that mix: ``softmax(scores / T)`` is then right there, and not for the mix of the hold-out.

    Args:
        samples: what was fitted on.
        goal: whose shares of the classes count.
        adjustment: what was chosen.
        reach: [n], how much of an offset arrives in each sample's scores; all of it if None.
    """
    # Samples weigh so that each class has its share, and 1 on average.
    shares = goal.shares(samples.sizes_in_all)
    weights = (len(samples.labels) * shares / np.maximum(samples.sizes, 1))[samples.labels]
    rows = some_rows(*samples.scores.shape)
    # The scores of samples are smoothed already.
    adjustment = replace(adjustment, smoothing=0.0)
    if reach is None:
        scores = adjustment.narrow_scores(samples.scores[rows])
    else:
        scores = adjustment.scores(samples.scores[rows], reach[rows])
    return fit_temperature(scores, samples.labels[rows], weights[rows])


def _floors(
    samples: Samples,
    goal: Goal,
    adjustment: Adjustment,
    evidence: Evidence | None,
    reach: np.ndarray | None,
) -> tuple[Floor, ...]:
    """Return each floor that was asked for, with the probability that it holds on new samples.

    By how many samples are right after the chosen adjustment, of all that were fitted on. Few samples of
    a class then say little, however many of them are right.

    Args:
        samples: what was fitted on.
        goal: with its floors [K], NaN for none.
        adjustment: what was chosen.
        evidence: in which the recalls of the model as it is are; () without.
        reach: [n], how much of an offset arrives in each sample's scores; all of it if None.
    """
    if goal.floors is None or evidence is None:
        return ()
    # The scores of samples are smoothed already.
    predicted = replace(adjustment, smoothing=0.0).predict(samples.scores, reach)
    right = Tables.of(samples.labels, predicted, samples.classes).right
    floors = []
    for k in np.flatnonzero(~np.isnan(goal.floors)):
        least = float(goal.floors[k])
        floor = Floor(
            index=int(k),
            least=least,
            probability=float(holds_with(right[k], samples.sizes[k], least)),
            held_before=bool(evidence.before.recall[k] >= least),
        )
        floors.append(floor)
    return tuple(floors)


def _estimate(target: str, unlabelled: Array | None, given: Given, level: float) -> PriorEstimate:
    """Return how often classes occur among unlabelled samples, calibrated on those given.

    Args:
        target: the word that asks for it, which any other text is taken for a mistake of.
        unlabelled: [M, K], logits of deployment data.
        given: the held-out samples, with labels.
        level: of the interval of each share.
    """
    check_is_estimate(target)
    held_out = (given.logits, given.labels)
    return estimate_target(
        unlabelled, given.counts, held_out, level=level, names=given.names, kind=given.read_as
    )
