"""A chosen gamma, with everything needed to judge it."""

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from ..core.class_names import listed
from ..core.class_names import title as class_title
from ..core.rules import RULES
from ..path.curve import Curve
from ..show.plot import draw_choice
from ..show.style import draw_text_curve, html, sparkline
from ..support.types import BiasPolicy, Kind, LabelTask, Metric
from .diagnostics import Verdict, is_worthwhile
from .path_metrics import TITLES, gain_text, value_form
from .priors import PriorEstimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOT_IN_JSON = (
    "curve",
    "criterion_curve",
    "prior",
    "candidates",
    "labels",
    "sources",
)  # or not as they are


@dataclass(frozen=True, eq=False)
class Candidate:
    """One rule that was tried: what it chose on all samples, and how well it does on samples it was not fitted on."""

    rule: str  # `none` is the model as it is
    gamma: float  # the strength that it chooses on all samples
    value: float  # the metric, cross-fitted: each sample is scored by a fit without it
    gain: float  # how much better that is than the model as it is; above 0 is better, whatever the metric
    interval: tuple[float, float] | None = None  # of the gain; None if it is not known
    second: float | None = None  # of `rescale+shift`, the strength of the shift
    curve: Curve | None = (
        None  # the metric over gamma on all samples; None for rules that are not a path
    )

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers without the curve, as JSON can hold them."""
        interval = None if self.interval is None else list(self.interval)
        kept = ("rule", "gamma", "second", "value", "gain")
        return {name: getattr(self, name) for name in kept} | {"interval": interval}


@dataclass(frozen=True)
class LabelChoice:
    """What was chosen for one label; None where it has no positive or no negative sample to tell."""

    positives: int  # how many of the samples have it
    offset: float = 0.0  # what is added to its logit; 0 leaves it as it is
    value: float | None = None  # its metric on these samples with the offset, and without
    value_at_zero: float | None = None
    recall: float | None = None  # of its positives
    recall_at_zero: float | None = None
    gain: float | None = (
        None  # how much the offset improves the metric on new samples; without a bootstrap, on these
    )
    interval: tuple[float, float] | None = None
    precision: float | None = (
        None  # of what is predicted to have it, with the offset, and without; None of nothing
    )
    precision_at_zero: float | None = None

    @property
    def moved(self) -> bool:
        """Whether it has another threshold than before."""
        return self.offset != 0


class TunedGamma(float):
    """A strength that remembers its rule, so that no other rule takes it without a word."""

    rule: str

    def __new__(cls, gamma: float, rule: str) -> "TunedGamma":
        """Return the strength."""
        made = super().__new__(cls, gamma)
        made.rule = rule
        return made

    def __getnewargs__(self) -> tuple[float, str]:
        return float(self), self.rule


@dataclass(frozen=True, eq=False)
class Tuned:
    """A chosen gamma: what `tune`, `cross_fit` and `match_prior` return. Errors, gains and shares are not in percent.

    Args:
        gamma, plateau: the middle of the gammas at which the criterion is lowest on these samples; from and to.
        interval: of gamma, over bootstrap replicates of the whole choice; None without a bootstrap.
        rule: what was chosen: `rescale`, `tau`, `shift`, `rescale+shift`, `vector` or `offsets`.
        scale, offset: [K] each, for the last three rules: ``score_k = scale_k logit_k + offset_k``; else ().
        smoothing: what `vector` adds to probabilities before their logarithm; 0 for logits.
        second: the strength of the shift in `rescale+shift`, whose gamma is that of rescaling, and of the shift that
            follows `vector` where the metric is not an error or there are floors.
        kind: what it was chosen on: `logits`, or `probabilities`, also if their logarithms were given, of which only
            the shift fits a head. None if an older file does not say it.
        temperature: divide the adjusted scores by it for calibrated probabilities; None without labels.
        task: `multiclass`, or `multilabel`, where `offset` is filled whatever the rule (see `TunedLabels`).
        candidates, why: each rule that was tried, with its cross-fitted value; why this one was chosen.
        criterion: what was minimized: `guided`, `balanced_error`, another metric, or `shares` (no labels).
        curve, criterion_curve: the metric (without labels: the mismatch of shares), and what was minimized; exact.
        metric, value, value_at_zero: what the gain is measured in; at gamma and at 0 on these samples, None without
            labels. So are error, balanced_error (weighted by the target), error_at_zero and balanced_error_at_zero.
        recall, recall_at_zero: [K], of each class on these samples, NaN without a sample; () without labels.
        gain: how much better the metric will be on new samples like these: what was measured on samples that the choice
            was not made on, drawn toward what such adjustments gain elsewhere (`diagnostics.py`). Where no interval is
            known, the gain on these very samples.
        gain_interval, level: of the gain; of both intervals.
        mismatch, mismatch_at_zero: distance of predicted shares from the target, if shares were used.
        floors, floors_met_at_zero: [K], the least recall of each class, 0 for none, or () without any floor; whether
            gamma = 0 meets them, or None.
        chosen_on, n, classes: `held-out`, `out-of-fold`, `unlabelled`, or `test`, which test data are not for; N; K.
        counts, names, bias: [K], the training samples of each class, of `cross_fit` the sum over its folds; class
            names, where given; whether the bias is scaled with its weight vector, or kept.
        missing, warnings: classes without a labelled sample, which are neutral; one line each.
        prior, labels: the shares that the target was estimated to be, or None; the choice for each label, or ().
        sources: the files it was chosen on, where they are known.
    """

    gamma: float
    interval: tuple[float, float] | None
    rule: str
    criterion: str
    chosen_on: str
    n: int
    classes: int
    plateau: tuple[float, float]
    curve: Curve
    criterion_curve: Curve
    metric: Metric = "balanced_error"
    value: float | None = None
    value_at_zero: float | None = None
    floors: tuple[float, ...] = ()
    floors_met_at_zero: bool | None = None
    level: float = 0.95
    error: float | None = None
    balanced_error: float | None = None
    error_at_zero: float | None = None
    balanced_error_at_zero: float | None = None
    gain: float | None = None
    gain_interval: tuple[float, float] | None = None
    mismatch: float | None = None
    mismatch_at_zero: float | None = None
    missing: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    counts: tuple[float, ...] = ()
    names: tuple[str, ...] | None = None
    bias: BiasPolicy = "scale"
    scale: tuple[float, ...] = ()
    offset: tuple[float, ...] = ()
    second: float | None = None
    temperature: float | None = None
    candidates: tuple[Candidate, ...] = ()
    why: str = ""
    task: LabelTask = "multiclass"
    recall: tuple[float, ...] = ()
    recall_at_zero: tuple[float, ...] = ()
    smoothing: float = 0.0
    prior: PriorEstimate | None = None
    kind: Kind | None = "logits"
    labels: tuple[LabelChoice, ...] = ()
    sources: dict[str, Any] | None = None
    _each: ClassVar = ("in", "class")  # in words about floors

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", TunedGamma(self.gamma, self.rule))

    @property
    def multilabel(self) -> bool:
        """Whether samples may have several labels, each with an offset."""
        return self.task == "multilabel"

    @property
    def verdict(self) -> Verdict | None:
        """Whether it is better than the model as it is, in words, with the probability of that; None if not known."""
        if self.gain is None or self.gain_interval is None:
            return None
        return Verdict(self.gain, self.gain_interval, self.level)

    @property
    def expected_gain(self) -> float | None:
        """How much better the metric will be on new samples like these; None if not known."""
        return None if self.gain_interval is None else self.gain

    @property
    def worthwhile(self) -> bool | None:
        """Whether the expected gain is above 0, or the model as it is misses the floors; None if not known."""
        return is_worthwhile(self.gain, self.gain_interval, self.floors_met_at_zero)

    @property
    def certain(self) -> bool | None:
        """Whether the whole interval of the gain is above 0, or the model as it is misses the floors."""
        if self.floors_met_at_zero is False:
            return True
        return None if self.gain_interval is None else self.gain_interval[0] > 0

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers without the curves, as JSON can hold them."""
        kept = {
            field.name: getattr(self, field.name)
            for field in fields(Tuned)
            if field.name not in NOT_IN_JSON
        }
        found = {
            name: list(value) if isinstance(value, tuple) else value for name, value in kept.items()
        }
        for name in ("recall", "recall_at_zero"):
            found[name] = [None if value != value else value for value in found[name]]
        found["prior"] = None if self.prior is None else self.prior.to_dict()
        found["candidates"] = [candidate.to_dict() for candidate in self.candidates]
        if self.multilabel:
            found["labels"] = [asdict(label) for label in self.labels]
        return found if self.sources is None else found | {"sources": self.sources}

    def facts(self) -> dict[str, str]:
        """Return the result in words, part by part, with a `verdict` if 0 may be the better gamma."""
        source = (
            "TEST DATA, so no test result at this gamma is honest"
            if self.chosen_on == "test"
            else self.chosen_on
        )
        on = f"chosen on {source} ({self.n} samples)"
        if RULES[self.rule].strengths:
            between = "" if self.interval is None else " ({:.3f} to {:.3f})".format(*self.interval)
            parts = {"gamma": f"{self.gamma:.3f}{between} for rule {self.rule}, {on}"}
        else:
            parts = {"rule": f"{self.rule} ({RULES[self.rule].sentence}), {on}"}
        if self.balanced_error is not None:
            parts[self.title] = self._change(self.metric, "value")
        if self.floors:
            at_zero = "at gamma = 0 too" if self.floors_met_at_zero else "which gamma = 0 does not"
            parts["floors"] = f"{self._floors_text()}: met, {at_zero}"
        if self.gain is not None:
            where = "gain on these samples" if self.gain_interval is None else "expected gain"
            parts[where] = gain_text(self.metric, self.gain, self.gain_interval)
        if self.verdict is not None and self.gain_interval != (0.0, 0.0):  # then nothing changes
            parts["verdict"] = f"{self.verdict} (gain above 0: {self.verdict.probability:.0%})"
        if self.prior is not None:
            parts["target"] = f"{self.prior.shares_text()}; estimated by {self.prior.source}"
        if (
            self.balanced_error is None
            and self.mismatch is not None
            and self.mismatch_at_zero is not None
        ):
            parts["predicted shares"] = (
                f"off the target by {self.mismatch_at_zero:.2%} -> {self.mismatch:.2%}"
            )
        return parts

    def __str__(self) -> str:
        return "; ".join(self._lines())

    def report(self) -> str:
        """Return the result as text: the curve, the numbers, and what they mean."""
        lines = self._lines() + self._class_lines() + self._candidate_lines()
        if self._drawn:
            drawn = draw_text_curve(
                self.curve, self.gamma, self.interval, form=value_form(self.metric)
            )
            lines = [drawn, f"{self.title} over gamma; ^ chosen, - its interval", "", *lines]
        if self.error is not None:
            for kind, other in (("plain", "error"), ("balanced", "balanced_error")):
                lines += [f"{kind} error on these samples {self._change(other, other)}"] * (
                    other != self.metric
                )
        return "\n".join(lines)

    @property
    def title(self) -> str:
        """The title of `curve`."""
        return "mismatch of shares" if self.balanced_error is None else TITLES[self.metric]

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the curve, gamma and its interval on the Axes given, or on new ones (extra `plot`), and return them."""
        where = "TEST DATA" if self.chosen_on == "test" else self.chosen_on
        return draw_choice(
            self.curve,
            self.gamma,
            ax,
            label=self.title,
            interval=self.interval,
            level=self.level,
            criterion=self.criterion_curve if self.criterion == "guided" else None,
            title=f"{self.n} samples, chosen on {where}",
            in_percent="%" in value_form(self.metric),
        )

    @property
    def _drawn(self) -> bool:
        """Whether the curve is known at more than one gamma, which that of a tuned.json is not."""
        return self.curve.end > self.curve.gammas[0]

    def __repr__(self) -> str:
        return f"Tuned({self})"

    def _repr_html_(self) -> str:
        picture = sparkline(self.curve, self.gamma, self.interval) if self._drawn else ""
        return html(
            "Tuned",
            self.facts(),
            picture=picture,
            notes=[f"warning: {line}" for line in self.warnings],
        )

    def _lines(self) -> list[str]:
        return [
            f"{name}{' = ' if name == 'gamma' else ' '}{words}"
            for name, words in self.facts().items()
        ]

    def _class_lines(self, most: int = 30) -> list[str]:
        """Return each class's recall before and after; of many classes, those that change most."""
        known = [i for i, value in enumerate(self.recall) if value == value]
        some = sorted(
            sorted(known, key=lambda i: -abs(self.recall[i] - self.recall_at_zero[i]))[:most]
        )
        change = {i: f"{self.recall_at_zero[i]:>7.1%} -> {self.recall[i]:.1%}" for i in some}
        rows = [f"  {class_title(i, self.names):24} {words}" for i, words in change.items()]
        more = [f"  and {len(known) - most} that change less"] * (len(known) > most)
        return ["", "recall of each class", *rows, *more, ""] * bool(rows)

    def _candidate_lines(self) -> list[str]:
        """Return each rule that was tried, with its value and gain on samples that it was not fitted on."""
        form = value_form(self.metric)
        rows = [
            f"  {one.rule:14} {format(one.value, form):>8}  gain {gain_text(self.metric, one.gain, one.interval)}"
            for one in self.candidates
        ]
        return [
            f"rules tried, {self.title} on samples that each was not fitted on",
            *rows,
            self.why,
            "",
        ] * bool(rows)

    def _change(self, metric: str, field: str) -> str:
        form = value_form(metric)
        return f"{getattr(self, f'{field}_at_zero'):{form}} -> {getattr(self, field):{form}}"

    def _floors_text(self) -> str:
        """Return the floors in words: one for all classes, or each."""
        rest, (at, what) = (
            {floor for i, floor in enumerate(self.floors) if i not in self.missing},
            self._each,
        )
        if len(rest) == 1:
            return f"recall of at least {rest.pop():.1%} {at} every {what}"
        some = [
            f"{floor:.1%} {at} {class_title(i, self.names)}"
            for i, floor in enumerate(self.floors)
            if floor > 0
        ]
        return f"recall of at least {listed(some)}"
