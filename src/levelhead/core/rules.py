"""The table of rules: what can be done to each class, and how that is fitted.

    ``score_k = scale_k logit_k + offset_k``

=============  ================================  ====================================
               from the counts, one strength     a number for each class, fitted
=============  ================================  ====================================
multiplies     `Rescale` (RS), `Tau` (by norms)  `Scales`
adds           `Shift`                           `Offsets`, the default
both                                             `Vector`
=============  ================================  ====================================

Every rule is a `Rule`. `tune` calls its `fit`, which returns `Fits`; `adjust_` with a strength of one's own
calls its `on_head`, which needs no samples, and `tune_unlabelled` its `match`, which needs no labels. Rules of the
left column are `OneStrength`, fitted by one_strength.py; those of the right are `PerClass`, fitted by per_class.py
and moved by metric_offsets.py.

A new rule is one class and one line of `RULES`: the command line, the page and the help find it there.

A rule is an object without state: `Rescale()` is to be fitted, `Rescale(0.5)` has a strength of its own. What is
true of a rule is asked of it (`multiplies`, `adds`, `follows_counts`), and nobody compares its name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..path.direction import Direction
from ..show.style import strength_text
from ..support.arrays import Array
from ..support.errors import Advice, LevelheadError, check_choice
from .adjustment import Adjustment, Fits
from .arguments import check_range, check_vector, finite_number
from .goal import Goal
from .head import Head, check_finite, positive_norms
from .match import match_means, match_strength
from .metric_offsets import move_for_goal
from .one_strength import fit_strength
from .per_class import Mask, calibrate, fit_per_class
from .samples import Samples

__all__ = ["RULES", "Adjustment", "Fits", "Offsets", "OneStrength", "PerClass", "Rescale", "Rule"]
__all__ += ["Scales", "Shift", "Tau", "Vector", "find_rule"]


class Rule:
    """Something that can be done to each class of a head: the base class of all rules.

    A rule of one's own is a subclass with a name, a title, a sentence, what it does (`multiplies`, `adds`)
    and `fit`. `OneStrength` and `PerClass` have a `fit`, so that most rules only say a formula.

    >>> [rule.name for rule in RULES.values() if rule.follows_counts]
    ['shift', 'rescale']
    """

    name: ClassVar[str] = ""  #: for options and files
    title: ClassVar[str] = ""  #: for tables
    sentence: ClassVar[str] = ""  #: what it does
    multiplies: ClassVar[bool] = False  #: whether it multiplies weight vectors
    adds: ClassVar[bool] = False  #: whether it adds to biases
    follows_counts: ClassVar[bool] = False  #: whether the counts decide: equal ones change nothing
    needs_norms: ClassVar[bool] = False  #: whether the norms of the weight vectors decide
    norms: Array | None = None  #: [K], these norms, of a rule that has been given some
    strength: float | None = None  #: one's own, of a rule that has been given one

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def sentence_for(self, target: object) -> str:
        """Return what it does in a choice that has this target, or None."""
        return self.sentence

    def fit(self, samples: Samples, goal: Goal) -> Fits:
        """Fit it without each fold and on all samples.

        Args:
            samples: held-out samples, in their folds.
            goal: what the choice is to be good at, for these samples.

        Returns:
            An adjustment without each fold of `samples.folds`, by which it is judged, and the one on
            all samples, which is applied. All of them in one call, as fits share most of their work.

        Raises:
            LevelheadError: it cannot act on these scores.
        """
        raise NotImplementedError

    def match(
        self,
        scores: np.ndarray,
        shares: np.ndarray,
        counts: np.ndarray | None,
        *,
        is_target: bool,
    ) -> Fits:
        """Choose it without labels, by how often each class should be predicted.

        Args:
            scores: [N, K] of unlabelled samples, in float64.
            shares: [K], how often each class should be predicted; they sum to 1.
            counts: [K], training samples of each class, if they are known.
            is_target: whether the shares were asked for as a target, and not only taken to be alike.

        Returns:
            The adjustment on all samples. There are no folds, as nothing is judged.

        Raises:
            LevelheadError: it needs labels, or counts.
        """
        reason = f"the rule {self.name} needs labels; use offsets, shift, rescale or tau"
        raise LevelheadError(reason, parameter="rule")

    def on_head(self, head: Head, counts: np.ndarray | None) -> Adjustment:
        """Return what it does to a head by itself, without samples.

        Args:
            head: of finite numbers.
            counts: [K], training samples of each class, if they are known.

        Raises:
            LevelheadError: this rule has nothing of its own to go by.
        """
        reason = f"the rule {self.name} is fitted on held-out samples; give what lh.tune returns"
        raise LevelheadError(reason, parameter="rule")

    def with_norms(self, norms: Array) -> Rule:
        """Return it with the norms of a head's weight vectors, [K], if these decide."""
        return self

    def refuse_kind(self, kind: str, parameter: str = "rule") -> None:
        """Raise LevelheadError if it multiplies and scores of a kind cannot be multiplied.

        Args:
            kind: of the scores, such as `probabilities`.
            parameter: the one that the error names.
        """
        if self.multiplies and kind != "logits":
            reason = f"{self.name!r} multiplies logits, which has no meaning for {kind}"
            raise LevelheadError(f"{reason}; use 'offsets'", parameter=parameter)

    def text(self, strength: float | None = None) -> str:
        """Return what was chosen, in words.

        Args:
            strength: the one that was chosen; None for a rule without one, or with one of its own.

        >>> RULES["shift"].text(0.5), RULES["offsets"].text()
        ('logit shift, strength 0.500', 'offsets')
        """
        if strength is None:
            return self.title
        return f"{self.title}, strength {strength_text(strength)}"


@dataclass(frozen=True, eq=False)
class OneStrength(Rule):
    """A rule that follows from the counts and one strength.

    ``l_k r_k^strength`` or, if it adds, ``l_k + strength log r_k``, with its ratios r. At strength 0 it is
    the model as it is. One number cannot overfit by much, so such a rule needs few samples; it also
    cannot tell two classes of equal counts apart.

    Args:
        strength: a strength of one's own; None if it is to be fitted.
        range: of the strengths to try, from and to, with 0 in it; its own if None. Widen it where the
            chosen strength lies at its end.

    A rule of one's own need only say its ratios:

    >>> class SquareRoot(OneStrength):
    ...     name = "square-root"
    ...     multiplies = True
    ...
    ...     def ratios(self, counts):
    ...         return np.sqrt(counts.max() / counts)
    >>> SquareRoot(1.0).on_head(Head(np.eye(2)), np.array([100, 25])).scale
    array([1., 2.])
    """

    strength: float | None = None
    range: tuple[float, float] | None = None
    follows_counts: ClassVar[bool] = True
    reach: ClassVar[float] = 2.0  #: the largest strength that is tried

    def __post_init__(self) -> None:
        if self.strength is not None:
            object.__setattr__(self, "strength", finite_number("strength", self.strength))
        if self.range is not None:
            object.__setattr__(self, "range", check_range(self.range, holds_zero=True))

    def ratios(self, counts: np.ndarray) -> np.ndarray:
        """Return r above, [K]: by default how rare each class is, ``n_max / n_k``.

        Args:
            counts: [K], checked: all positive.
        """
        return counts.max() / counts

    def direction(self, counts: np.ndarray, target: np.ndarray | None = None) -> Direction:
        """Return how scores depend on the strength.

        Args:
            counts: [K], checked.
            target: [K], the shares in deployment, for rules that go by them.
        """
        return Direction(self.name, self.ratios(counts), self.multiplies)

    def range_on(self, samples: Samples) -> tuple[float, float]:
        """Return the strengths to try on some samples."""
        if self.range is not None:
            return self.range
        return (0.0, self.reach)

    def at(self, direction: Direction, strength: float, smoothing: float = 0.0) -> Adjustment:
        """Return what it does at a strength.

        Args:
            direction: as `direction` returned it.
            strength: how far to go; 0 changes nothing.
            smoothing: what is added to probabilities (`smooth_votes`), for rules that add.
        """
        with np.errstate(over="ignore"):  # a factor that does not fit is reported where it is used
            if self.multiplies:
                return Adjustment.scaling(direction.ratios**strength)
        offset = strength * direction.slopes + 0.0  # without a negative 0
        return Adjustment(np.ones(len(offset)), offset, smoothing)

    def fit(self, samples: Samples, goal: Goal) -> Fits:
        self.refuse_kind(samples.kind)
        direction = self.direction(samples.counts_of_rules, goal.target)

        def at(strength: float) -> Adjustment:
            adjustment = self.at(direction, strength, samples.smoothing)
            if samples.background is None:
                return adjustment
            return adjustment.relative_to(samples.background)

        # A strength of one's own is judged, and not fitted.
        if self.strength is not None:
            fixed = at(self.strength)
            return Fits([fixed] * len(samples.folds), fixed, self.strength)
        reach = self.range_on(samples)
        return fit_strength(samples, goal, direction, reach, at)

    def match(
        self,
        scores: np.ndarray,
        shares: np.ndarray,
        counts: np.ndarray | None,
        *,
        is_target: bool,
    ) -> Fits:
        if counts is None and not self.follows_counts:
            counts = np.ones(len(shares))  # at which it does not look
        if counts is None:
            advice = "give the counts of the training, or use the rule offsets, which needs none"
            raise LevelheadError(f"the rule {self.name} needs them; {advice}", parameter="counts")
        target = None
        if is_target:
            target = shares
        direction = self.direction(counts.astype(np.float64), target)
        # A strength of one's own is taken as it is, as in `fit`.
        strength = self.strength
        if strength is None:
            strength = match_strength(scores, direction, self.range or (0.0, self.reach), shares)
        return Fits([], self.at(direction, strength), strength)

    def on_head(self, head: Head, counts: np.ndarray | None) -> Adjustment:
        strength = self.given_strength()
        if counts is None:
            reason = f"the rule {self.name} needs counts, the training samples of each class"
            raise LevelheadError(reason, parameter="counts")
        return self.at(self.direction(counts.astype(np.float64)), strength)

    def given_strength(self) -> float:
        """Return the strength; raise LevelheadError if it is not given."""
        if self.strength is None:
            example = f"lh.rules.{type(self).__name__}(0.5)"
            raise LevelheadError(f"expected a strength, such as {example}", parameter="rule")
        return self.strength

    def text(self, strength: float | None = None) -> str:
        """Return what was chosen, in words, with this `strength` or its own."""
        if strength is None:
            strength = self.strength
        return super().text(strength)


class Rescale(OneStrength):
    """RS: ``w_k <- (n_max / n_k)^strength w_k`` (Kim and Kim 2020).

    The paper's rule, in which the strength is called gamma. It lengthens the weight vectors of rare
    classes, so it is for logits that are mostly positive for the true class: a larger factor pushes
    negative ones down. Two opposite logits it never changes.

    A bias is scaled with its weight vector, as the weight of a feature that is always 1: so scaling
    the head is scaling its logits (`adjustment.scale_head`; ``lh.rescale_(..., bias="keep")`` keeps it).

    Args:
        strength, range: as in `OneStrength`.

    >>> Rescale(0.5).on_head(Head(np.eye(2)), np.array([100, 25])).scale
    array([1., 2.])
    >>> from levelhead import adjust
    >>> adjust(Head(np.eye(2), bias=np.array([1.0, 3.0])), Rescale(0.5), [100, 25]).bias
    array([1., 6.])
    """

    name = "rescale"
    title = "RS"
    sentence = "weight vectors multiplied by (largest count / own count)^strength"
    multiplies = True


@dataclass(frozen=True, eq=False)
class Tau(OneStrength):
    """tau-normalization: ``w_k <- w_k / ||w_k||^strength`` (Kang et al. 2020).

    At strength 1 all weight vectors have unit length. It needs no counts: frequent classes are known by
    their long vectors, where training has left them long.

    Args:
        strength, range: as in `OneStrength`.
        norms: [K], the norms of the weight vectors, for `tune`; a head brings its own.

    >>> Tau(1.0).on_head(Head(np.array([[3.0, 4.0], [0.0, 2.0]])), None).scale
    array([0.2, 0.5])
    """

    norms: Array | None = None
    name: ClassVar[str] = "tau"
    title: ClassVar[str] = "tau-normalization"
    sentence: ClassVar[str] = "weight vectors divided by their norm^strength"
    multiplies: ClassVar[bool] = True
    follows_counts: ClassVar[bool] = False
    needs_norms: ClassVar[bool] = True

    def ratios(self, counts: np.ndarray) -> np.ndarray:
        if self.norms is None:
            advice = Advice("rule", None, "as lh.rules.Tau(norms=head.norms)")
            reason = "'tau' needs the weight norms of the head"
            raise LevelheadError(reason, parameter="rule", advice=advice)
        return 1 / check_vector(self.norms, len(counts), "norms", positive=True)

    def with_norms(self, norms: Array) -> Tau:
        return replace(self, norms=norms)

    def on_head(self, head: Head, counts: np.ndarray | None) -> Adjustment:
        strength = self.given_strength()
        # Its own norms, whatever was given: counts play no part.
        norms = positive_norms(check_finite(head))
        return self.at(Direction(self.name, 1 / norms), strength)


class Shift(OneStrength):
    """The shift: ``b_k <- b_k + strength log(n_max / n_k)`` (Menon et al. 2021).

    For calibrated scores, strength 1 is Bayes' rule from the mix of the training to classes that are all
    alike. Scores that are too large by a temperature T need about T.

    Args:
        strength, range: as in `OneStrength`.

    >>> Shift(1.0).on_head(Head(np.eye(2)), np.array([100, 1])).offset
    array([0.        , 4.60517019])
    """

    name = "shift"
    title = "logit shift"
    sentence = "strength times log(largest count / own count) added to scores"
    adds = True
    reach = 4.0

    def sentence_for(self, target: object) -> str:
        if target is None:
            return self.sentence
        return "strength times log(share in the target / share in training) added to scores"

    def direction(self, counts: np.ndarray, target: np.ndarray | None = None) -> Direction:
        """Return how scores depend on the strength; toward a target, by ``log(target_k / n_k)``.

        Args:
            counts: [K], n, checked.
            target: [K], the shares in deployment; alike if None.
        """
        if target is not None:
            # A share of 0 would ask for an offset of -inf.
            counts = counts / np.maximum(target, 1e-3 / len(target))
        return Direction(self.name, self.ratios(counts), multiplies=False)

    def range_on(self, samples: Samples) -> tuple[float, float]:
        """Return the strengths to try on some samples: more where their scores are too large."""
        if self.range is not None:
            return self.range
        return 0.0, self.reach * max(1.0, calibrate(samples))


class PerClass(Rule):
    """A rule with numbers of its own for each class, by log loss and then the metric.

    `per_class.fit_per_class` fits the numbers that its mask names, for classes that occur as in training;
    `metric_offsets.move_for_goal` then moves the offsets to what the goal asks for.

    >>> [(rule.name, rule.mask.scales) for rule in RULES.values() if isinstance(rule, PerClass)]
    [('offsets', False), ('scales', True), ('vector', True)]
    """

    mask: ClassVar[Mask]  #: which numbers are fitted

    def fit(self, samples: Samples, goal: Goal) -> Fits:
        if self.multiplies and samples.background is not None:
            reason = f"the rule {self.name} changes every class; use offsets, shift or rescale"
            raise LevelheadError(reason, parameter="background")
        fits, temperature = fit_per_class(samples, self.mask)
        # Only offsets can be moved toward what log loss does not know.
        if self.adds:
            return move_for_goal(fits, samples, goal, temperature)
        return fits


class Offsets(PerClass):
    """An offset for each class: only the biases of a head change.

    ``b_k <- b_k + offset_k``. It acts the same on logits, log-probabilities and probabilities, of
    whatever model. The default: in the mean of the sets of docs/decisions.md no other rule is ahead.

    >>> from levelhead import tune
    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat([0, 1, 2], [300, 60, 40])
    >>> logits = 2 * np.eye(3)[labels] + rng.normal(size=(400, 3)) + np.log([1000, 200, 40])
    >>> chosen = tune(logits, labels, rule=Offsets()).adjustment
    >>> chosen.scale, chosen.offset.round(1)
    (array([1., 1., 1.]), array([0. , 1.7, 3.3]))
    """

    name = "offsets"
    title = "offsets"
    sentence = "an offset per class, added to its score"
    adds = True
    mask = Mask(scales=False, offsets=True)

    def match(
        self,
        scores: np.ndarray,
        shares: np.ndarray,
        counts: np.ndarray | None,
        *,
        is_target: bool,
    ) -> Fits:
        """Return the offsets by which the mean softmax of the scores becomes the shares.

        Args:
            scores, shares, counts: as in `Rule.match`; with counts, held near what these ask for.
            is_target: not looked at: shares are matched, whoever asked for them.
        """
        return Fits([], Adjustment.adding(match_means(scores, shares, counts)))


class Scales(PerClass):
    """A scale for each class, ``w_k <- scale_k w_k``: for heads that can take no bias.

    Fitted by log loss alone: what a metric asks for beyond that would be an offset.

    >>> from levelhead import tune
    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat([0, 1, 2], [300, 60, 40])
    >>> logits = 2 * np.eye(3)[labels] + rng.normal(size=(400, 3)) + np.log([1000, 200, 40])
    >>> chosen = tune(logits, labels, rule=Scales()).adjustment
    >>> chosen.scale.round(1), chosen.offset
    (array([1.1, 1.1, 1.4]), array([0., 0., 0.]))
    """

    name = "scales"
    title = "scales"
    sentence = "a scale per class, multiplied with its score"
    multiplies = True
    mask = Mask(scales=True, offsets=False)


class Vector(PerClass):
    """Vector scaling: a scale and an offset for each class (Guo et al. 2017).

    ``w_k <- scale_k w_k`` and ``b_k <- scale_k b_k + offset_k``. Chosen on probabilities it is for
    scores alone, as no head multiplies their logarithms. It has twice as many numbers to fit as
    `Offsets`.

    >>> from levelhead import tune
    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat([0, 1, 2], [300, 60, 40])
    >>> logits = 2 * np.eye(3)[labels] + rng.normal(size=(400, 3)) + np.log([1000, 200, 40])
    >>> chosen = tune(logits, labels, rule=Vector()).adjustment
    >>> chosen.multiplies, chosen.adds
    (True, True)
    """

    name = "vector"
    title = "vector scaling"
    sentence = "a scale and an offset per class"
    multiplies = True
    adds = True
    mask = Mask(scales=True, offsets=True)


# Every rule by its name, as `rule=` and the command line know it. `tune` without a rule takes `DEFAULT`.
RULES: dict[str, Rule] = {
    rule.name: rule for rule in (Offsets(), Shift(), Rescale(), Tau(), Scales(), Vector())
}
DEFAULT = Offsets.name


def find_rule(rule: str | Rule) -> Rule:
    """Return a rule as it is, or the one that has a name.

    Raises:
        LevelheadError: an unknown name; the message lists the known ones.

    >>> find_rule("shift").sentence
    'strength times log(largest count / own count) added to scores'
    """
    if isinstance(rule, Rule):
        return rule
    check_choice("rule", rule, RULES)
    return RULES[rule]


def default_rule(*, takes_bias: bool) -> Rule:
    """Return the rule for a head if none is asked for: `offsets`, or `scales` if it takes no bias.

    >>> default_rule(takes_bias=True).name, default_rule(takes_bias=False).name
    ('offsets', 'scales')
    """
    if takes_bias:
        return RULES[DEFAULT]
    return RULES[Scales.name]
