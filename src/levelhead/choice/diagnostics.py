"""What speaks against a choice before it is made, and what to expect of it on new samples.

A gain measured on few samples is a guess of the true one, and the best of several guesses is too high. So it is drawn
toward what such adjustments gain elsewhere, the more the less certain it is: the posterior mean of a normal prior. On
real sets (docs/decisions.md) adjustments gained about a quarter of the balanced error and an eighth of 1 - macro-F1,
with a standard deviation of a quarter. The prior is more cautious than that: of 374 real gains 96.5 % lie in their
interval, the test's own noise taken into account, and the gain to expect is too high by 0.2 points in the mean (-0.9 of
balanced error, +1.2 of macro-F1). Chosen for the least such bias on either half of the sets, `USUAL` is 0.10 or 0.12;
on the other half 96.6 or 96.4 % lie in their interval. At 0.15, 97.3 % did, and the bias was 0.5.
"""

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from ..core.adjustment import check_vector
from ..core.class_names import listed
from ..core.head import Head, norm_follows_count
from ..core.rules import Rule
from ..support import warnings as kinds
from ..support.arrays import Array, KeptRows, check_columns, described, raise_masked, to_numpy
from ..support.errors import LevelheadError

Diagnosis = kinds.LevelheadWarning | None
_USE_SHIFT = "use the rule shift, which adds instead of multiplying"


def diagnose_accuracy(right: np.ndarray) -> Diagnosis:
    """Warn if fewer than 1 in 500 of at least 300 samples are wrong."""
    # With fewer than 300 samples, none wrong is still compatible with an honest error of 1 % (the rule of three). On
    # training data a network is wrong almost nowhere. On unseen long-tailed data almost none is that good.
    n, wrong = len(right), int((~right).sum())
    if n < 300 or wrong * 500 >= n:
        return None
    good = f"{wrong} of {n} samples are wrong at gamma = 0, which is too good for data that the model has not seen"
    return kinds.LeakageWarning(
        f"{good}; choose gamma on samples that it was not trained on, or without labels"
    )


def diagnose_below_chance(right: np.ndarray, labels: np.ndarray, classes: int) -> Diagnosis:
    """Warn if the model as it is is worse than guessing, by three standard errors and every class weighing the same."""
    # No trained model is; labels, counts or names in another order than the columns of the logits are.
    recall, sizes = class_means(labels, right)
    chance, error = 1 / classes, float(np.sqrt((1 / (4 * sizes)).sum())) / len(sizes)
    if recall.mean() + 3 * error >= chance or len(sizes) < 2:
        return None
    low = (
        f"the model as it is has a mean recall of {recall.mean():.1%}, below chance ({chance:.1%})"
    )
    order = "check that labels, counts and names are in the order of the columns of the logits"
    return kinds.CountsWarning(f"{low}: {order}")


def diagnose_training_rows(logits: Array, training: Array | None) -> Diagnosis:
    """Warn if at least one row in ten equals a row of the training data, bit for bit."""
    if training is None:
        return None
    held, trained = to_numpy(logits), to_numpy(training)
    check_columns(trained, held.shape[1], "training")
    if trained.dtype.kind not in "fiu":
        raise LevelheadError(
            f"expected floating-point numbers, got {described(trained)}", parameter="training"
        )
    known = {row.tobytes() for row in trained.astype(held.dtype, copy=False)}
    shared = sum(row.tobytes() in known for row in held)
    if shared * 10 < len(held):
        return None
    leak = f"{shared} of {len(held)} held-out rows are also in the training data"
    return kinds.LeakageWarning(
        f"{leak}; choose gamma on samples that the model was not trained on"
    )


def diagnose_negative_logits(logits: Array, labels: np.ndarray, rule: Rule) -> Diagnosis:
    """Warn if more than one true-class logit in five is negative, averaged over classes, and the rule multiplies."""
    # Without averaging, frequent classes, whose logits are rarely negative, would hide the rare ones that RS is for.
    if not rule.multiplies:
        return None
    own = to_numpy(
        logits[np.arange(len(labels)), labels]
    )  # only these of a memory-mapped or GPU array
    share = float(class_means(labels, own < 0)[0].mean())
    if share <= 0.2:
        return None
    down = f"{share:.0%} of the true-class logits are negative, and a larger factor moves those down, not up"
    return kinds.NegativeLogitsWarning(f"{down}; {_USE_SHIFT}")


def diagnose_binary_head(logits: Array, rule: Rule) -> Diagnosis:
    """Warn if two classes have logits (-z, z) or (0, z) and the rule multiplies: the larger stays the larger."""
    if not rule.multiplies or logits.shape[1] != 2:
        return None
    some = raise_masked(to_numpy(logits[:1000]).astype(np.float64))
    opposite = np.allclose(some[:, 0], -some[:, 1], rtol=1e-4, atol=1e-6 * np.abs(some).max())
    if not opposite and some.any(axis=0).all():
        return None
    what = "the two logits are opposite" if opposite else "one of the two logits is always 0"
    return kinds.BinaryHeadWarning(f"{what}, so scaling never changes a prediction; {_USE_SHIFT}")


def diagnose_norms(norms: Array | None, counts: np.ndarray, rule: Rule) -> Diagnosis:
    """Warn if the rank correlation of weight norms with counts is below -0.3 and the rule scales by counts."""
    if norms is None or not (rule.multiplies and rule.follows_counts):
        return None
    correlation = norm_follows_count(
        Head(check_vector(norms, len(counts), "norms")[:, None]), counts
    )
    if not correlation < -0.3:
        return None
    fall = f"weight norms fall as counts grow (rank correlation {correlation:.2f}, typical of Adam)"
    short = f"{fall}, so rare classes do not have the short weight vectors"
    return kinds.NormWarning(f"{short}; {_USE_SHIFT}, or compare the rules (levelhead.compare)")


def diagnose_missing_classes(
    sizes: np.ndarray, names: Sequence[str] | None = None, *, least: int = 1
) -> Diagnosis:
    """Warn if a class has fewer samples than `least`, among those that gamma is chosen on."""
    if not (absent := np.flatnonzero(sizes < least).tolist()):
        return None
    shown = listed([str(i) if names is None else f"{i} ({names[i]})" for i in absent])
    few = "no sample" if least == 1 else f"fewer than {least} samples"
    neutral = "neutral in every measure, although gamma moves it too"
    return kinds.MissingClassWarning(f"{few} here of class {shown}: {neutral}")


def diagnose_balanced_counts(counts: np.ndarray, model: str) -> Diagnosis:
    """Warn if counts of other samples than a trained model's own are balanced: none is twice another."""
    if counts.max() >= 2 * counts.min():
        return None
    return kinds.CountsWarning(
        f"{model} is already trained, and the samples given now are balanced ({counts.min():g} to "
        f"{counts.max():g} per class), so their counts level almost nothing; pass the counts of its training samples"
    )


def diagnose_unpredicted_classes(shares: np.ndarray, target: np.ndarray, n: int) -> Diagnosis:
    """Warn if more than a third of n samples belong to classes predicted less than a tenth as often as they occur."""
    # Only classes with at least 5 expected samples count. In our networks on CIFAR and Tiny ImageNet (results/records),
    # matching shares cost 2 to 9 points of error where at least 2 classes in 5 were never predicted, and at most 0.8
    # elsewhere.
    absent = (shares < target / 10) & (n * target >= 5)
    if target[absent].sum() <= 1 / 3:
        return None
    return kinds.NeverPredictedWarning(
        f"{absent.sum()} of {len(target)} classes, {target[absent].sum():.0%} of the samples by the target, "
        "are hardly ever predicted at gamma = 0, so samples of other classes may make up their shares; choose gamma on "
        "labelled samples"
    )


def diagnose_range_end(plateau: tuple[float, float], reach: tuple[float, float]) -> Diagnosis:
    """Warn if the best plateau touches an end of the range, other than 0, and is not the whole of it."""
    low, high = plateau
    at_end = (high >= reach[1]) != (low <= reach[0] and reach[0] < 0)
    if not at_end or (high >= reach[1] and low <= reach[0]):
        return None
    end = f"the criterion is lowest at the end of the range ({low:.3g} to {high:.3g})"
    return kinds.RangeWarning(f"{end}; a wider range of gamma may do better")


def issue_warnings(*found: Diagnosis) -> tuple[str, ...]:
    """Issue what was found as warnings; return their texts."""
    issued = [one for one in found if one is not None]
    for one in issued:
        kinds.warn(one)
    return tuple(f"{type(one).__name__}: {one}" for one in issued)


EQUAL = 1.1  # counts are called equal if the largest is at most so many times the smallest
LEANING = -0.2  # how far predictions may lean toward classes with few counts
_SAMPLES = 20_000  # are enough to tell


def diagnose_counts(
    logits: Array, labels: np.ndarray, counts: np.ndarray, rule: Rule
) -> list[Diagnosis]:
    """Return the doubts about the counts of a rule that uses them."""
    if not rule.follows_counts:
        return []
    return [diagnose_equal_counts(counts), diagnose_reversed_counts(logits, labels, counts)]


def diagnose_equal_counts(counts: np.ndarray) -> Diagnosis:
    """Warn if counts are equal, or all within a tenth of each other: rules that use them then change nothing."""
    low, high = counts.min(), counts.max()
    if high > EQUAL * low:
        return None
    how = f"equal ({low:g} in each class), so there is nothing"
    if low != high:
        how = f"almost equal ({low:g} to {high:g} per class), so there is next to nothing"
    give = "give the counts of its training set, not of a balanced hold-out"
    return kinds.CountsWarning(
        f"the counts are {how} to level; if the model was trained on imbalanced data, {give}"
    )


def diagnose_reversed_counts(logits: Array, labels: np.ndarray, counts: np.ndarray) -> Diagnosis:
    """Warn if predictions lean clearly toward the classes with few counts."""
    # ``lean = mean over classes j of E[z_predicted - z_j | label j]``, with z the logarithms of the counts,
    # standardized: above 0 for a model that was trained plainly, about 0 with class weights or over-sampling. Asked for
    # is a lean below -0.2, and below -0.1 by three standard errors. On long-tailed digits (ratios 5, 20 and 100, 8
    # models, 4 seeds) and the two networks of the package, the right counts gave -0.14 or more; reversed ones -0.15 or
    # less for plain models of ratio 20 and 100.
    if counts.max() < 2 * counts.min():
        return None
    step = -(-len(labels) // _SAMPLES)
    predicted = (
        logits.winners[::step]
        if isinstance(logits, KeptRows)
        else to_numpy(logits[::step].argmax(1))
    )
    labels = labels[::step]
    z = np.log(counts)
    z = (z - z.mean()) / z.std()
    leans = z[predicted] - z[labels]
    (means, sizes), (squares, _) = class_means(labels, leans), class_means(labels, leans**2)
    lean = float(means.mean())
    error = float(np.sqrt(((squares - means**2).clip(0) / sizes).sum()) / len(sizes))
    if lean >= LEANING or lean + 3 * error >= LEANING / 2:
        return None
    rare = counts <= np.median(counts)
    shares = [float(class_means(labels, rare[each])[0].mean()) for each in (predicted, labels)]
    return kinds.CountsWarning(
        f"the classes with the fewest counts are predicted too often ({shares[0]:.0%} of the predictions, "
        f"{shares[1]:.0%} of the samples, every class weighing the same), as if the counts were in reverse or of "
        "another order of the classes; check that order, unless the model was trained with strong weights for rare "
        "classes"
    )


def class_means(labels: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of values [N] in each class that has a sample, and how many samples it has."""
    sizes = np.bincount(labels)
    return np.bincount(labels, values)[sizes > 0] / sizes[sizes > 0], sizes[sizes > 0]


USUAL, SPREAD = (
    0.12,
    0.2,
)  # gain to expect before any sample is seen, and its spread, as shares of the loss


class Verdict(str):
    """`better`, `probably better`, `no difference seen` or `worse`, with the gain to expect and its probability.

    Args:
        gain, interval, level: of the metric, above 0 is better; the interval, and how often it is right.

    Attributes:
        expected_gain: how much better the metric will be on new samples like these.
        probability: that it will be better at all.

    >>> verdict = Verdict(0.04, (-0.01, 0.09), 0.95)
    >>> verdict, round(verdict.probability, 2)
    ('probably better', 0.94)
    """

    expected_gain: float
    probability: float

    def __new__(cls, gain: float, interval: tuple[float, float], level: float) -> "Verdict":
        """Return the verdict on a gain."""
        low, high = interval
        unsure = "probably better" if gain > 0 else "no difference seen"
        verdict = super().__new__(cls, "better" if low > 0 else "worse" if high < 0 else unsure)
        verdict.expected_gain = gain
        spread = (high - low) / 2 / NormalDist().inv_cdf((1 + level) / 2)
        verdict.probability = (
            NormalDist(gain, spread).cdf(2 * gain) if spread > 0 else float(gain > 0)
        )
        return verdict

    def __reduce__(self) -> tuple:
        return str, (str(self),)


def is_worthwhile(
    gain: float | None, interval: Sequence[float] | None, floors_met_at_zero: bool | None
) -> bool | None:
    """Return whether to apply an adjustment: a gain is expected, or floors are met only so; None if not known."""
    if floors_met_at_zero is False:
        return True
    return None if gain is None or interval is None else gain > 0


def expect_gain(
    gain: float, error: float, loss: float, level: float
) -> tuple[float, tuple[float, float]]:
    """Return the gain to expect on new samples, and its interval, from one that has a standard error."""
    # Drawn toward `USUAL`, a share of the loss of the model as it is, the more the less certain the gain is: the
    # posterior mean and spread of a normal prior.
    if error == 0:
        return gain, (gain, gain)
    spread = SPREAD * abs(loss)
    trust = spread**2 / (spread**2 + error**2)
    mean, reach = (
        trust * gain + (1 - trust) * USUAL * loss,
        NormalDist().inv_cdf((1 + level) / 2) * error * trust**0.5,
    )
    return mean, (mean - reach, mean + reach)
