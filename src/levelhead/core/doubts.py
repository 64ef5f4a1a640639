"""What speaks against a choice: each doubt is a warning, issued in one place and kept in the result.

Each function asks one question of the samples, and returns the warning if the answer is bad, else None.
`doubts_about` asks all that concern `tune`; `issue_warnings` issues those that there are. Limits were set so
that the usual case is silent; where they were measured, the comment says on what.

A doubt changes no number: the choice stands, and the warning says what may be wrong with what was given, and what
to do. What is certainly wrong is an error, and was refused before. Most questions are asked of `Outcomes`, the
counts of (true, before, after), so that they cost nothing, and can be asked of chunks that nobody holds any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..support import warnings as kinds
from ..support.arrays import Array, described, to_numpy
from ..support.errors import LevelheadError
from ..support.logits import check_columns, raise_masked
from .class_names import listed
from .goal import Goal
from .head import Head
from .head_checks import norm_follows_count
from .judge import Outcomes
from .rules import Rule
from .samples import Given

Doubt = kinds.LevelheadWarning | None  # the warning, or that there is nothing to warn of
LEANING = -0.2  # how far predictions may lean toward classes with few counts
EQUAL = 1.1  # counts are called equal if the largest is at most so many times the smallest
_DIFFERENT = 0.2  # the share of samples by which two mixes of classes differ
_USE_OFFSETS = "use the rule offsets, which adds instead of multiplying"


def doubts_about(
    given: Given, outcomes: Outcomes, goal: Goal, rule: Rule, training: Array | None
) -> list[Doubt]:
    """Return what speaks against a choice: the answer to every question, None where there is no doubt.

    Args:
        given: the samples it was made on.
        outcomes: what is predicted there, before and after.
        goal: what it is to be good at.
        rule: by which it was made.
        training: [M, K], training logits, if they are known.
    """
    doubts = [
        doubt_training_rows(given.logits, training),
        doubt_norms(rule, given.counts_of_rules),
        doubt_binary_head(given.logits, rule),
        doubt_negative_logits(given.logits, given.labels, rule),
        doubt_equal_counts(given.counts_of_rules, rule),
    ]
    # Counts of the labels themselves are in their order, and have their mix.
    if not given.counted:
        doubts += [
            doubt_reversed_counts(outcomes, given.counts),
            doubt_mix(outcomes, given.counts, goal),
        ]
    doubts += [
        doubt_accuracy(outcomes),
        doubt_below_chance(outcomes),
        doubt_missing_classes(outcomes.sizes, given.names, counted=given.counted),
    ]
    return doubts


def issue_warnings(doubts: Iterable[Doubt]) -> tuple[str, ...]:
    """Issue what was found as warnings; return their texts.

    Each text begins with the class of the warning, by which users filter them, and goes into the result:
    a warning that was printed once is gone, a `Tuned` is kept.
    """
    issued = [doubt for doubt in doubts if doubt is not None]
    for doubt in issued:
        kinds.warn(doubt)
    return tuple(f"{type(doubt).__name__}: {doubt}" for doubt in issued)


def doubt_accuracy(outcomes: Outcomes) -> Doubt:
    """Doubt data of which fewer than 1 in 500 of at least 300 samples are wrong.

    They may be training samples, on which nothing can be chosen: there rare classes look solved. Where
    nearly all samples are of one class, any model is wrong that rarely: then nine in ten of the others have
    to be right as well.
    """
    # With fewer than 300 samples, none wrong is still compatible with an honest error of 1 % (the
    # rule of three). On training data a network is wrong almost nowhere. On unseen long-tailed data
    # almost none is that good.
    wrong = int(outcomes.times[outcomes.before != outcomes.true].sum())
    of_other_classes = outcomes.n - int(outcomes.sizes.max())
    if outcomes.n < 300 or wrong * 500 >= outcomes.n or wrong * 10 > of_other_classes:
        return None
    good = f"only {wrong} of {outcomes.n} samples are wrong"
    return kinds.LeakageWarning(
        f"{good}, which is too good for data that the model has not seen; tune on samples that it "
        "was not trained on, or without labels"
    )


def doubt_below_chance(outcomes: Outcomes) -> Doubt:
    """Doubt a model that is worse than guessing, by three standard errors, all classes alike.

    By the mean recall, which is 1 / K for any guess, however imbalanced the samples.
    """
    # No trained model is; labels, counts or names in another order than the columns are.
    sizes = outcomes.sizes
    present = sizes > 0
    recalls, _ = _class_means(outcomes, outcomes.before == outcomes.true)
    recall = float(recalls.mean())
    # Of a recall that is not known its variance is at most 1/4 over the samples of the class.
    error = float(np.sqrt((1 / (4 * sizes[present])).sum())) / present.sum()
    chance = 1 / outcomes.classes
    if recall + 3 * error >= chance or present.sum() < 2:
        return None
    low = f"the model as it is has a mean recall of {recall:.1%}, below chance ({chance:.1%})"
    order = "check that labels, counts and names are in the order of the columns of the logits"
    return kinds.CountsWarning(f"{low}: {order}")


def doubt_training_rows(logits: Array, training: Array | None) -> Doubt:
    """Doubt data of which at least one row in ten equals one of the training data, bit for bit.

    Args:
        logits: [N, K], the held-out samples.
        training: [M, K], logits of the training samples; None if nobody has them.

    Raises:
        LevelheadError: training logits of other classes, or that are no numbers.
    """
    if training is None:
        return None
    held = to_numpy(logits)
    trained = to_numpy(training)
    check_columns(trained, held.shape[1], "training")
    if trained.dtype.kind not in "fiu":
        description = described(trained)
        raise LevelheadError(
            f"expected floating-point numbers, got {description}", parameter="training"
        )
    # Rows as bytes, in the type of the held-out ones: a set of them finds each in one step.
    trained_rows = {row.tobytes() for row in trained.astype(held.dtype, copy=False)}
    shared = sum(row.tobytes() in trained_rows for row in held)
    if shared * 10 < len(held):
        return None
    leak = f"{shared} of {len(held)} held-out rows are also in the training data"
    return kinds.LeakageWarning(f"{leak}; tune on samples that the model was not trained on")


def doubt_negative_logits(logits: Array, labels: np.ndarray, rule: Rule) -> Doubt:
    """Doubt a rule that multiplies, if over a fifth of the true-class logits are negative.

    RS means to raise the scores of rare classes. A factor above 1 raises only those above 0.

    Args:
        logits: [N, K], wherever they are.
        labels: [N].
        rule: by which the choice was made.
    """
    # Averaged over the classes: frequent ones, whose logits are rarely negative, would hide others.
    if not rule.multiplies:
        return None
    # Only these are read of a file or of a GPU.
    true_logits = to_numpy(logits[np.arange(len(labels)), labels])
    sizes = np.bincount(labels)
    present = sizes > 0
    shares = np.bincount(labels, true_logits < 0)[present] / sizes[present]
    share = float(shares.mean())
    if share <= 0.2:
        return None
    down = f"{share:.0%} of the true-class logits are negative, and a larger factor moves those"
    return kinds.NegativeLogitsWarning(f"{down} down, not up; {_USE_OFFSETS}")


def doubt_binary_head(logits: Array, rule: Rule) -> Doubt:
    """Doubt a rule that multiplies logits (-z, z) or (0, z): the larger stays the larger.

    As in `can_flip`, but of logits, as `tune` knows no head. The first thousand rows tell.
    """
    if not rule.multiplies or rule.adds or logits.shape[1] != 2:
        return None
    first_rows = raise_masked(to_numpy(logits[:1000]).astype(np.float64))
    tiny = 1e-6 * np.abs(first_rows).max()
    opposite = np.allclose(first_rows[:, 0], -first_rows[:, 1], rtol=1e-4, atol=tiny)
    one_is_zero = not first_rows.any(axis=0).all()
    if not opposite and not one_is_zero:
        return None
    flaw = "one of the two logits is always 0"
    if opposite:
        flaw = "the two logits are opposite"
    stuck = f"{flaw}, so scaling never changes a prediction"
    return kinds.BinaryHeadWarning(f"{stuck}; {_USE_OFFSETS}")


def doubt_norms(rule: Rule, counts: np.ndarray) -> Doubt:
    """Doubt a rule by norms if these fall as counts grow: rank correlation below -0.3.

    tau-normalization takes long vectors for frequent classes. Where rare ones are longer, it would take
    from the rare and give to the frequent.
    """
    if rule.norms is None:
        return None
    norms = to_numpy(rule.norms).astype(np.float64)
    correlation = norm_follows_count(Head(norms[:, None]), counts)
    if not correlation < -0.3:
        return None
    fall = f"weight norms fall as counts grow (rank correlation {correlation:.2f}, as of Adam)"
    return kinds.NormWarning(f"{fall}, so rare classes do not have short vectors; {_USE_OFFSETS}")


def doubt_missing_classes(
    sizes: np.ndarray, names: Sequence[str] | None = None, *, counted: bool = False
) -> Doubt:
    """Doubt data in which a class has no sample.

    Args:
        sizes: [K], how many samples each class has.
        names: of the classes, where they are known.
        counted: whether these samples stand in for the training counts as well, 1 for a class without any.
    """
    absent = np.flatnonzero(sizes < 1).tolist()
    if not absent:
        return None
    classes = [str(i) for i in absent]
    if names is not None:
        classes = [f"{i} ({names[i]})" for i in absent]
    stays = "it goes by its training count alone, and is in no measure"
    if len(absent) > 1:
        stays = "they go by their training counts alone, and are in no measure"
    if counted:
        stays = "taken to be as rare as a class of one sample, and in no measure"
        stays = f"{stays}; give the counts of the training"
    return kinds.MissingClassWarning(f"no sample here of class {listed(classes)}: {stays}")


def doubt_balanced_counts(counts: np.ndarray, model: str) -> Doubt:
    """Doubt counts of other samples than a trained model's own, if none is twice another.

    For hosts that count the labels they are fitted on: given a trained model and a balanced hold-out,
    these are not the counts that the model was trained with.

    Args:
        counts: [K], of the samples given now.
        model: what to call the model in the message.
    """
    if counts.max() >= 2 * counts.min():
        return None
    return kinds.CountsWarning(
        f"{model} is already trained, and the samples given now are balanced ({counts.min():g} to "
        f"{counts.max():g} per class), so their counts level almost nothing; pass the counts of "
        "its training samples"
    )


def doubt_equal_counts(counts: np.ndarray, rule: Rule) -> Doubt:
    """Doubt a rule that follows counts if these are equal: it then changes nothing.

    A rule by norms or with numbers of its own needs no counts, and is not asked.
    """
    low = counts.min()
    high = counts.max()
    if not rule.follows_counts or high > EQUAL * low:
        return None
    how = f"equal ({low:g} in each class)"
    if low != high:
        how = f"almost equal ({low:g} to {high:g} per class)"
    give = "give those of its training set, or use the rule offsets, which needs none"
    return kinds.CountsWarning(
        f"the counts are {how}, so the rule {rule.name} does nothing; {give}"
    )


def doubt_mix(outcomes: Outcomes, counts: np.ndarray, goal: Goal) -> Doubt:
    """Doubt a metric that depends on how often classes occur, where that is known to differ.

    A hold-out that is balanced, of a model for a long tail, gives a macro-F1 that nobody will see. The two
    mixes differ by half the sum of ``|share_k - trained_k|``.
    """
    # Metrics of recalls are the same in any mix; a target says which mix is meant.
    if (goal.metric.of_recalls and not goal.metric.as_they_come) or goal.target is not None:
        return None
    held = outcomes.sizes / outcomes.n
    trained = counts / counts.sum()
    apart = float(np.abs(held - trained).sum()) / 2
    # About how far they are apart by the draw of the samples alone.
    chance = float(np.sqrt(held * (1 - held) / outcomes.n).sum())
    if apart < _DIFFERENT + chance:
        return None
    differ = "the held-out samples have another mix of classes than the training counts"
    meant = f"and {goal.metric.title} depends on the mix; give the shares you expect as the target"
    return kinds.MixWarning(f"{differ} ({apart:.0%} of them would have to change class), {meant}")


def doubt_reversed_counts(outcomes: Outcomes, counts: np.ndarray) -> Doubt:
    """Doubt the order of counts if predictions lean clearly toward classes with few of them.

    Models that were trained on a long tail predict frequent classes too often. If the opposite is seen,
    the counts are likely those of other columns, as of labels in another order.
    """
    # ``lean = mean over classes j of E[z_predicted - z_j | label j]``, with z the logarithms of the
    # counts, standardized: above 0 for a model that was trained plainly, about 0 with class weights
    # or over-sampling. Asked for is a lean below -0.2, and below -0.1 by three standard errors. On
    # long-tailed digits (ratios 5, 20 and 100, 8 models, 4 seeds) and the two networks of the
    # package, the right counts gave -0.14 or more; reversed ones -0.15 or less for plain models of
    # ratio 20 and 100.
    if counts.max() < 2 * counts.min():
        return None
    z = np.log(counts)
    z = (z - z.mean()) / z.std()
    leans = z[outcomes.before] - z[outcomes.true]
    means, sizes = _class_means(outcomes, leans)
    squares, _ = _class_means(outcomes, leans**2)
    lean = float(means.mean())
    error = float(np.sqrt(((squares - means**2).clip(0) / sizes).sum()) / len(sizes))
    if lean >= LEANING or lean + 3 * error >= LEANING / 2:
        return None
    rare = counts <= np.median(counts)
    predicted = float(_class_means(outcomes, rare[outcomes.before])[0].mean())
    occurring = float(_class_means(outcomes, rare[outcomes.true])[0].mean())
    return kinds.CountsWarning(
        f"the classes with the fewest counts are predicted too often ({predicted:.0%} of the "
        f"predictions, {occurring:.0%} of the samples, every class weighing the same), as if the "
        "counts were in reverse or of another order of the classes; check that order, unless the "
        "model was trained with strong weights for rare classes"
    )


def doubt_unpredicted_classes(shares: np.ndarray, target: np.ndarray, n: int) -> Doubt:
    """Doubt shares if over a third of n samples belong to classes that are hardly predicted.

    Args:
        shares: [K], how often each class is predicted by the model as it is.
        target: [K], how often each occurs.
        n: how many samples there are.
    """
    # Only classes with at least 5 expected samples count. In our networks on CIFAR and Tiny ImageNet
    # (results/records), matching shares cost 2 to 9 points of error where at least 2 classes in 5
    # were never predicted, and at most 0.8 elsewhere.
    absent = (shares < target / 10) & (n * target >= 5)
    if target[absent].sum() <= 1 / 3:
        return None
    return kinds.NeverPredictedWarning(
        f"{absent.sum()} of {len(target)} classes, {target[absent].sum():.0%} of the samples by "
        "the target, are hardly ever predicted by the model as it is, so samples of other classes "
        "may make up their shares; tune on labelled samples"
    )


def _class_means(outcomes: Outcomes, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of values [M] in each class that has a sample, and how many it has.

    Args:
        outcomes: M combinations, each with how often it occurs.
        values: [M], a number of each combination.
    """
    sums = np.bincount(outcomes.true, outcomes.times * values, outcomes.classes)
    present = outcomes.sizes > 0
    sizes = outcomes.sizes[present]
    return sums[present] / sizes, sizes
