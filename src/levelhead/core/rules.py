"""`Rule`: something that can be done to a head, and the table of all: a new one is one class and one line of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ..path.direction import Direction
from ..support.arrays import to_numpy
from ..support.errors import Advice, LevelheadError, check_choice
from ..support.types import Kind
from .adjustment import Adjustment, check_range, check_vector
from .head import Head


@dataclass(frozen=True)
class Strengths:
    """What was chosen for a rule: `gamma`, its strength, and `second`, that of a second part, where it has one."""

    gamma: float = 0.0
    second: float | None = None
    scale: Sequence[
        float
    ] = ()  #: [K], of a rule that has numbers for each class, as `offset`; else ()
    offset: Sequence[float] = ()
    smoothing: float = 0.0  #: what is added to probabilities before their logarithm; 0 for logits


@dataclass(frozen=True, eq=False)
class Rule:
    """Something that can be done to a head. The class says what; an instance may say with which range."""

    range: tuple[float, float] | None = None  #: of the strength, from and to; its own if None

    name: ClassVar[str] = ""  #: for options and files
    unsaid: ClassVar[bool] = False  #: whether it is the one meant where none is named
    title: ClassVar[str] = ""  #: for tables
    sentence: ClassVar[str] = ""  #: what it does to a class
    multiplies: ClassVar[bool] = False  #: whether it multiplies weight vectors
    adds: ClassVar[bool] = False  #: whether it adds to biases
    follows_counts: ClassVar[bool] = True  #: whether training counts decide what it does to a class
    needs_norms: ClassVar[bool] = False  #: whether the norms of the weight vectors do
    strengths: ClassVar[int] = 1  #: how many there are; 0 if it has numbers for each class instead
    reach: ClassVar[float] = 2.0  #: the largest strength that is tried
    grows: ClassVar[bool] = (
        False  #: whether that is times the temperature of scores that are too large
    )
    pulled: ClassVar[bool] = (
        False  #: whether `auto` pulls its strength toward what a calibrated model needs
    )
    python: ClassVar[str] = ""  #: see `code`
    without_strength: ClassVar[str] = ""  #: what was chosen, in words, where there is no strength
    follows_target: ClassVar[bool] = (
        False  #: whether a target prior decides, by log(target_k / n_k), where classes go
    )
    first_with_target: ClassVar[bool] = (
        False  #: whether `auto` keeps it, with a target, unless clearly beaten
    )
    for_named_classes: ClassVar[bool] = (
        False  #: whether it is for goals that name classes: floors, costs, macro-F1
    )
    along: ClassVar[str] = (
        "shift"  #: the rule of one strength whose path shows it, where it has none of its own
    )

    def __post_init__(self) -> None:
        if self.range is not None:
            check_range(self.range, holds_zero=True)

    @property
    def changes(self) -> bool:
        """Whether it does anything."""
        return self.multiplies or self.adds

    @property
    def has_path(self) -> bool:
        """Whether it is a path over one strength."""
        return isinstance(self, OneStrength)

    @property
    def fits_sums(self) -> bool:
        """Whether it fits layers that are added up or scaled after: the same factors for all, and nothing added."""
        return not self.adds and (self.follows_counts or not self.multiplies)

    @property
    def path_name(self) -> str:
        """The rule of one strength whose path shows it: itself, if it has one."""
        return self.name if self.has_path else self.along

    def range_at(self, temperature: float = 1.0) -> tuple[float, float]:
        """Return the strengths to try, on scores of a temperature."""
        if self.range is not None:
            return self.range
        return 0.0, self.reach * (max(1.0, temperature) if self.grows else 1.0)

    def amounts(self, head: Head, counts: np.ndarray | None, chosen: Strengths) -> Adjustment:
        """Return what it does to each row of a finite head; counts are [K], or None if the rule ignores them."""
        # A head with one logit z, which is positive for the second of two classes, has counts [2] and is shifted by
        # ``log(n_0 / n_1)``: that is the shift of the logits (0, z). Scaling never moves its sign.
        raise NotImplementedError

    def on_scores(self, counts: np.ndarray, chosen: Strengths) -> Adjustment:
        """Return what it does to scores [N, K] that come from no head; counts [K] of what the model was trained on."""
        return replace(
            self.amounts(Head(np.ones((len(counts), 1))), counts, chosen),
            smoothing=chosen.smoothing,
        )

    def refuses(self, head: Head, counts: np.ndarray | None) -> str | None:
        """Return why it cannot adjust a head, or None."""
        if not (self.multiplies and _is_one_logit(head, counts)):
            return None
        reason = f"a head with a single logit cannot be adjusted by the rule {self.name}"
        return f"{reason}: scaling never moves its sign; use the rule shift"

    def refuses_kind(self, kind: str | None) -> str | None:
        """Return why it fits no head if it was chosen on scores of a kind, or None."""
        if kind != "probabilities" or not self.multiplies:
            return None
        reason = f"the rule {self.name} was chosen on probabilities (or their logarithms), and would multiply logits"
        return f"{reason} in a head; tune on the model's logits, or with the rule shift"

    def check(self, head: Head, counts: np.ndarray | None) -> None:
        """Raise LevelheadError if it cannot adjust a head."""
        if (reason := self.refuses(head, counts)) is not None:
            raise LevelheadError(reason)

    def text(self, gamma: float, second: float | None = None) -> str:
        """Return what was chosen, in words."""
        if self.without_strength:
            return self.without_strength
        then = "" if second is None else f", then a shift of {round(second, 3) + 0.0:.3f}"
        return f"gamma = {gamma:.3f}{then}"

    def code(self) -> str:
        """Return the Python that applies it to `model` at {gamma}; "" where there is no function of its own."""
        return self.python


class Unchanged(Rule):
    """The model as it is."""

    name = "none"
    title = without_strength = "the model as it is"
    sentence = "nothing is changed"
    follows_counts = False
    strengths = 0

    def amounts(self, head: Head, counts: np.ndarray | None, chosen: Strengths) -> Adjustment:
        return Adjustment(scale=np.ones(head.classes))


@dataclass(frozen=True, eq=False)
class OneStrength(Rule):
    """A rule of one strength: ``l_k r_k^gamma``, or ``l_k + gamma log r_k``, with its ratios r."""

    bias: Any = None  #: [K], a bias within the logits that is kept as the weights are scaled; None if it is scaled too
    norms: Any = None  #: [K], the norms of the weight vectors

    def ratios(self, counts: np.ndarray, norms: np.ndarray | None) -> np.ndarray:
        """Return r above, [K]: by default how rare each class is."""
        return counts.max() / counts

    def direction(
        self, counts: np.ndarray, *, norms: Any = None, bias: Any = None, kind: Kind = "logits"
    ) -> Direction:
        """Return how scores depend on the strength, for checked counts [K], norms [K] and a kept bias [K], if any."""
        norms, bias = self.norms if norms is None else norms, self.bias if bias is None else bias
        if norms is not None and not self.needs_norms:
            raise LevelheadError(
                f"only the rule tau uses them, got {self.name!r}", parameter="norms"
            )
        if kind == "probabilities" and self.multiplies:
            reason = f"{self.name!r} multiplies logits, which has no meaning for probabilities"
            raise LevelheadError(f"{reason}; use 'shift'", parameter="rule")
        if norms is None and self.needs_norms:
            advice = Advice("norms", None, "with them")
            raise LevelheadError(
                f"{self.name!r} needs the weight norms of the head", parameter="rule", advice=advice
            )
        if bias is not None and not self.multiplies:
            reason = (
                f"a bias is kept while weights are scaled, and the rule {self.name} scales none"
            )
            raise LevelheadError(f"{reason}; leave it out", parameter="bias")
        known = (
            check_vector(norms, len(counts), "norms", positive=True) if self.needs_norms else None
        )
        kept = None if bias is None else check_vector(bias, len(counts), "bias")
        return Direction(self.name, self.ratios(counts, known), self.multiplies, kept)

    def amounts(self, head: Head, counts: np.ndarray | None, chosen: Strengths) -> Adjustment:
        self.check(head, counts)
        assert counts is not None
        with np.errstate(
            over="ignore"
        ):  # a factor that does not fit gives a weight that does not, which is reported
            ratios = (
                counts[:1] / counts[1:]
                if _is_one_logit(head, counts)
                else self.ratios(counts, None)
            )
            if self.multiplies:
                return Adjustment(scale=ratios**chosen.gamma)
            return Adjustment(offset=chosen.gamma * np.log(ratios))


class Rescale(OneStrength):
    """RS: ``w_k <- (n_max / n_k)^gamma w_k`` (Kim and Kim 2020)."""

    name = "rescale"
    unsaid = True
    title = "RS"
    sentence = "each class's weight vector is multiplied by (largest count / its count)^gamma"
    multiplies = True
    python = "lh.rescale_(model, counts, gamma={gamma})"


class Tau(OneStrength):
    """tau-normalization: ``w_k <- w_k / ||w_k||^gamma`` (Kang et al. 2020)."""

    name = "tau"
    title = "tau-normalization"
    sentence = "each class's weight vector is divided by its norm^gamma"
    multiplies = True
    follows_counts = False
    needs_norms = True
    python = "write(model, lh.tau_normalize(read(model), {gamma}))"

    def ratios(self, counts: np.ndarray, norms: np.ndarray | None) -> np.ndarray:
        assert norms is not None
        return 1 / norms

    def amounts(self, head: Head, counts: np.ndarray | None, chosen: Strengths) -> Adjustment:
        self.check(head, counts)
        return Adjustment(scale=positive_norms(head) ** -chosen.gamma)


class Shift(OneStrength):
    """The shift: ``b_k <- b_k + gamma log(n_max / n_k)`` (Menon et al. 2021). Several labels have an offset each."""

    name = "shift"
    title = "logit shift"
    sentence = "gamma times log(largest count / its count) is added to each class's score"
    adds = True
    reach = 4.0
    grows = True
    pulled = True
    follows_target = True
    python = "write(model, lh.shift_logits(read(model), counts, {gamma}))"

    def amounts(self, head: Head, counts: np.ndarray | None, chosen: Strengths) -> Adjustment:
        given = len(chosen.offset) > 0
        return (
            _given_offset(self, head, counts, chosen.offset)
            if given
            else super().amounts(head, counts, chosen)
        )


class PerClass(Rule):
    """A rule that has a scale and an offset for each class: ``score_k = scale_k logit_k + offset_k``."""

    multiplies = True
    adds = True

    def amounts(self, head: Head, counts: np.ndarray | None, chosen: Strengths) -> Adjustment:
        self.check(head, counts)
        return _given(self, head, chosen.scale, chosen.offset)


class RescaleThenShift(PerClass):
    """RS, and then the shift that is best after it."""

    name = "rescale+shift"
    title = "RS, then shift"
    sentence = (
        "each class's weight vector is multiplied by (largest count / its count)^gamma, and then a number that grows "
        "with log(largest count / its count) is added to its score"
    )
    strengths = 2
    along = "rescale"

    def adjustment(
        self, counts: np.ndarray, gamma: float, second: float, shifted: np.ndarray | None = None
    ) -> Adjustment:
        """Return what both strengths do to each class; counts [K] that the shift takes in place of the others."""
        shifted = counts if shifted is None else shifted
        return Adjustment(
            (counts.max() / counts) ** gamma, second * np.log(shifted.max() / shifted) + 0.0
        )

    def on_scores(self, counts: np.ndarray, chosen: Strengths) -> Adjustment:
        if len(chosen.offset):  # by a target, and not by counts alone
            return super().on_scores(counts, chosen)
        return self.adjustment(counts, chosen.gamma, chosen.second or 0.0)


class Vector(PerClass):
    """Vector scaling: a scale and an offset for each class, by log loss (Guo et al. 2017)."""

    name = "vector"
    title = "vector scaling"
    sentence = "each class's score is multiplied by a number of its own, and another one is added"
    follows_counts = False
    strengths = 0
    first_with_target = True
    without_strength = "a scale and an offset for each class"


class Offsets(PerClass):
    """An offset for each class, for goals that name classes: floors, costs, macro-F1."""

    name = "offsets"
    title = "offsets"
    sentence = "a number of its own is added to each class's score"
    for_named_classes = True
    multiplies = False
    follows_counts = False
    strengths = 0
    without_strength = "an offset for each class"

    def amounts(self, head: Head, counts: np.ndarray | None, chosen: Strengths) -> Adjustment:
        return _given_offset(self, head, counts, chosen.offset)


AUTO = "auto"  # whichever rule is best on samples that it was not fitted on


@dataclass(frozen=True, eq=False)
class Auto(Rule):
    """The rule that is best on held-out samples that it was not fitted on; `range` is of each rule's strength."""

    norms: Any = (
        None  #: [K], the norms of the weight vectors, with which tau-normalization is tried too
    )
    bias: Any = None  #: [K], a bias within the logits that is kept as the weights are scaled; None if it is scaled too

    name = AUTO
    title = "the best rule"


RULES: dict[str, Rule] = {  # simplest first, as they are tried
    rule.name: rule
    for rule in (Unchanged(), Shift(), Rescale(), Tau(), RescaleThenShift(), Vector(), Offsets())
}


def rule_with(rule: str | Rule, *, range: Any = None, norms: Any = None, bias: Any = None) -> Rule:
    """Return a rule, given by its name or as an object, with the settings that it takes and that are not None."""
    if not isinstance(rule, Rule) and rule != AUTO:
        check_choice("rule", rule, RULES)
    made = rule if isinstance(rule, Rule) else Auto() if rule == AUTO else RULES[rule]
    takes_bias = isinstance(made, Auto | OneStrength)
    if bias is not None and not takes_bias:
        raise LevelheadError(
            f"{made.name!r} keeps no bias; use 'rescale', or scale the bias too", parameter="rule"
        )
    given = {"range": range} | ({"norms": norms, "bias": bias} if takes_bias else {})
    return replace(made, **{name: value for name, value in given.items() if value is not None})


def find_path_rule(rule: Any) -> OneStrength:
    """Return a rule of one strength as it is, or the one that has a name."""
    if isinstance(rule, OneStrength):
        return rule
    check_choice("rule", rule, (name for name, known in RULES.items() if known.has_path))
    return RULES[rule]  # type: ignore[return-value]


def positive_norms(head: Head) -> np.ndarray:
    """Return the norms [K] of a head whose weight vectors all have a direction."""
    norms = to_numpy(head.norms).astype(np.float64)
    long, none = (
        "too long to measure in float32; convert the head to float64",
        "zero and has no direction",
    )
    for usable, flaw in (
        (np.isfinite(norms), long),
        (norms > 0, f"{none}; rescale and shift do not need one"),
    ):
        if not usable.all():
            raise LevelheadError(
                f"the weight vector of {head.name(int(np.argmin(usable)))} is {flaw}"
            )
    return norms


def _is_one_logit(head: Head, counts: np.ndarray | None) -> bool:
    return head.classes == 1 and counts is not None and len(counts) == 2


def _given_offset(
    rule: Rule, head: Head, counts: np.ndarray | None, offset: Sequence[float]
) -> Adjustment:
    if (
        _is_one_logit(head, counts) and len(offset) == 2
    ):  # the second class's score less the first's
        offset = [offset[1] - offset[0]]
    return Adjustment(offset=_given(rule, head, np.ones(head.classes), offset).offset)


def _given(rule: Rule, head: Head, scale: Any, offset: Any) -> Adjustment:
    """Return numbers that were chosen for each class, checked."""
    scale, offset = np.asarray(scale, np.float64), np.asarray(offset, np.float64)
    if any(
        values.shape != (head.classes,) or not np.isfinite(values).all()
        for values in (scale, offset)
    ):
        wanted = f"a finite scale and offset for each of {head.classes} classes"
        raise LevelheadError(
            f"the rule {rule.name} needs {wanted}, got {scale.size} and {offset.size}; tune again"
        )
    if not (scale > 0).all():
        raise LevelheadError(
            f"the rule {rule.name} needs positive scales, got {scale.min():g}; tune again"
        )
    return Adjustment(scale, offset)
