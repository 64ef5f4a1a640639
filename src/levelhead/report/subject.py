"""A subject: one model on one set of samples, what was chosen for it, the rules shown, the command that tunes it."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..core.array import Array
from ..core.choices import Kind
from ..core.curve import Curve
from ..core.errors import LevelheadError
from ..core.head import Head
from ..path.envelope import Envelope
from ..path.path import GammaPath
from ..rules.rule import AUTO, RULES, Rescale

ChoiceRecord = dict[str, Any]  # what Tuned.to_dict returns, or its first few entries
LEAST_END = 0.4  # of a slider; of the shift, less for scores of a smaller spread
LARGEST_GAMMA = 50.0  # at this gamma, a class with half the samples is scaled by 10^15
MODEL = "model.safetensors"  # where the model's file is not known
TUNED = "tuned.json"  # the same for the choice


@dataclass(frozen=True, eq=False)
class RuleView:
    """One rule on the samples of a page.

    Args:
        rule: which.
        gamma: the strength chosen for it; of a rule with numbers for each class, 1: its slider goes from the model as
            trained (0) to those numbers (1); None if none was chosen.
        changes: every change of a prediction over the strength.
        path: where each sample is right; None without labels.
        ratios, scale, offset: [K], of a rule of one strength; of one with numbers for each class.
        target, interval: [K], what each class weighs; of gamma.
        smoothing: what is added to probabilities before their logarithm.
        least_end: where the slider ends at least.
    """

    rule: str
    gamma: float | None
    changes: Envelope
    path: GammaPath | None = None
    ratios: np.ndarray | None = None
    scale: np.ndarray | None = None
    offset: np.ndarray | None = None
    target: np.ndarray | None = None
    interval: tuple[float, float] | None = None
    smoothing: float = 0.0
    least_end: float = LEAST_END

    @property
    def title(self) -> str:
        """The rule's name for people."""
        return rule_title(self.rule)

    def smoothed(self, logits: np.ndarray) -> np.ndarray:
        """Return the logits [N, K] that scale and offset are for."""
        return np.logaddexp(logits, np.log(self.smoothing)) if self.smoothing else logits

    def parts(self, gamma: float) -> tuple[np.ndarray, np.ndarray]:
        """Return scale and offset [K] at a strength: ``score_k = scale_k logit_k + offset_k``."""
        if self.ratios is None:
            assert self.scale is not None
            assert self.offset is not None
            return parts_at(gamma, self.scale, self.offset)
        still = np.ones(len(self.ratios)), np.zeros(len(self.ratios))
        if RULES[self.rule].multiplies:
            return self.ratios**gamma, still[1]
        return still[0], gamma * np.log(self.ratios)

    @cached_property
    def curve(self) -> Curve:
        """The balanced error over the strength or, without labels, the mismatch of predicted shares."""
        return self.changes.mismatch(self.target) if self.path is None else self.path.balanced_error_curve

    @cached_property
    def best(self) -> float:
        """The middle of the strengths at which that is lowest on these samples."""
        return self.curve.middle(self.curve.plateau())

    @cached_property
    def end(self) -> float:
        """The end of the slider: past the choice, its interval, the best strength, and all that are no worse than 0."""
        if not RULES[self.rule].has_path:
            return self.changes.range[1]
        curve, between = self.curve, self.interval or (0.0, 0.0)
        useful = float(curve.gammas[curve.values <= float(curve.at(0.0))].max())
        wanted = max(self.gamma or 0.0, between[1], useful, self.best, self.least_end)
        unit = 10.0 ** min(-1, np.floor(np.log10(wanted)) - 1)  # of scores on a small scale, finer than 0.1
        return min(curve.end, float(f"{np.ceil(1.25 * wanted / unit) * unit:.10g}"))

    @cached_property
    def step(self) -> int:
        """How many strengths the slider can stop at per unit: 10,000, and fewer or more on other scales of scores."""
        over, under = np.ceil(np.log10(self.end / 6)), np.ceil(np.log10(0.4 / self.end))
        return 10 ** int(max(0, 4 - max(0, over) + max(0, under)))


@dataclass(frozen=True, eq=False)
class Subject:
    """One model on one set of samples.

    Args:
        title, names: what to call it and its classes.
        counts: [K], training samples of each class.
        choice: gamma and how it was chosen: Tuned.to_dict(), or at least `gamma`, `rule` and `chosen_on`.
        views: the chosen rule and others, each with all that it predicts; () if there are no logits, only a choice.
        logits, samples: [N, K], of the samples shown, and what these are, in words: `test`, `held-out`.
        apart: whether the samples shown had no part in the choice.
        target: [K], what each class weighs; equal if None.
        held_out: other logits and labels than those shown, to fit a temperature on.
        head, log: the head, where it is known; a dict per epoch of its training, with at least `epoch` and `norms`.
        facts: where the subject comes from, by title.
        model, tuned_file, files: in the commands to copy: the model's file, the tuned.json that holds the choice, and
            the files of logits, labels and counts; "" and {} if they are not known.
        fitted: the estimator that does what was chosen already, in words; "" if it is still to be applied.
        drawn: {rule: curve} to draw of rules that have no view.

    >>> from levelhead.report import of_logits
    >>> subject = of_logits(np.eye(3) + 1, [0, 1, 2], [90, 30, 10], gamma=0.5)
    >>> subject.gamma, subject.classes, subject.name(2)
    (0.5, 3, '2')
    """

    title: str
    counts: np.ndarray
    choice: ChoiceRecord
    views: tuple[RuleView, ...] = ()
    logits: Array | None = None
    samples: str = "held-out"
    apart: bool = False
    names: Sequence[str] | None = None
    target: np.ndarray | None = None
    held_out: tuple[Array, np.ndarray] | None = None
    head: Head | None = None
    log: Sequence[dict[str, Any]] = ()
    facts: dict[str, str] = field(default_factory=dict)
    model: str = ""
    tuned_file: str = ""
    files: dict[str, str] = field(default_factory=dict)
    fitted: str = ""
    drawn: dict[str, Curve] = field(default_factory=dict)
    kind: Kind = "logits"

    @property
    def gamma(self) -> float:
        """The strength that was chosen, where the slider of its rule shows it."""
        return chosen_strength(self.choice)

    @property
    def path(self) -> GammaPath | None:
        """Where the samples shown are right over the chosen rule's strength; None if their labels are not known."""
        return self.views[0].path if self.views else None

    @property
    def changes(self) -> Envelope | None:
        """Every change of a prediction over the chosen rule's strength."""
        return self.views[0].changes if self.views else None

    @property
    def worthwhile(self) -> bool | None:
        """Whether the choice has a certain gain, by its own metric; None if it was not made on labels, or is old."""
        choice = self.choice
        if choice["chosen_on"] in ("given", "unlabelled") or "gain_interval" not in choice:
            return None
        between = choice["gain_interval"]
        return choice.get("floors_met_at_zero") is False or (between is not None and between[0] > 0)

    @property
    def gain_interval(self) -> tuple[float, float] | None:
        """The interval of the gain in balanced error; None if the choice has none, or was made by another metric."""
        found = self.choice.get("gain_interval") if self.choice.get("metric") in (None, "balanced_error") else None
        return None if found is None else (found[0], found[1])

    @property
    def level(self) -> float:
        """The confidence level of the intervals shown."""
        return self.choice.get("level") or 0.95

    @property
    def classes(self) -> int:
        return len(self.counts)

    def name(self, i: int) -> str:
        return str(i) if self.names is None else str(self.names[i])

    @cached_property
    def present(self) -> np.ndarray:
        """The classes with a sample among those shown; all if labels are not known."""
        return np.arange(self.classes) if self.path is None else np.unique(self.path.labels)

    @cached_property
    def mass(self) -> np.ndarray:
        """What each class weighs in the balanced error, [K]; 0 for a class without a sample."""
        share = np.zeros(self.classes)
        share[self.present] = 1.0 if self.target is None else self.target[self.present]
        return share / share.sum()

    @property
    def curve(self) -> Curve | None:
        """The balanced error over the chosen rule's strength or, without labels, the mismatch of predicted shares."""
        return self.views[0].curve if self.views else None

    @property
    def end(self) -> float:
        """The end of the chosen rule's slider."""
        return self.views[0].end

    @cached_property
    def halves(self) -> tuple[np.ndarray, np.ndarray]:
        """The rarer and the more frequent half, by training counts, of the classes with samples."""
        order = self.present[np.argsort(self.counts[self.present], kind="stable")]
        size = max(1, len(order) // 2)
        return np.sort(order[:size]), np.sort(order[len(order) - size :])

    @property
    def groups(self) -> dict[str, list[int]]:
        """The one grouping of the page: the rarer and the more frequent half."""
        return {name: members.tolist() for name, members in zip(("rare", "common"), self.halves, strict=True)}


@dataclass(frozen=True)
class LabelRow:
    """One label: positives among the samples shown, and threshold, recall and precision before and after.

    A threshold is of the probability. A precision is None where nothing is predicted.
    """

    name: str
    count: float
    positives: int
    threshold: float
    recall: tuple[float | None, float | None]
    precision: tuple[float | None, float | None]
    gain: str = ""


@dataclass(frozen=True, eq=False)
class LabelSubject:
    """One multi-label model on one set of samples, with what was chosen for it.

    Args:
        title: what to call it.
        choice: what `TunedLabels.to_dict` returns, or its first few entries.
        rows, n: one for each label; how many samples are shown.
        apart: whether they had no part in the choice.
        facts, files, model, tuned_file: as in `Subject`.
    """

    title: str
    choice: ChoiceRecord
    rows: tuple[LabelRow, ...]
    n: int
    apart: bool = False
    facts: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    model: str = ""
    tuned_file: str = ""


def rule_title(rule: str) -> str:
    """Return a rule's name for people, as a title.

    >>> rule_title("shift")
    'Logit shift'
    """
    title = RULES[rule].title
    return f"{title[:1].upper()}{title[1:]}"


def chosen_strength(choice: ChoiceRecord) -> float:
    """Return where on its rule's slider a choice is."""
    return float(choice["gamma"]) if RULES[choice["rule"]].has_path else 1.0


def parts_at(share: float, scale: np.ndarray, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the scale and the offset [K] at a share of the way from the model as trained to what was chosen."""
    return (1 - share) * middle_scale(scale) + share * scale, share * offset


def middle_scale(scale: np.ndarray) -> float:
    """Return the geometric mean of scales, which changes no prediction."""
    return float(np.exp(np.log(scale).mean()))


def given_choice(gamma: float | None, rule: str, tuned: ChoiceRecord | None) -> ChoiceRecord | None:
    """Return the gamma or the choice that is given, checked; None if neither is."""
    named = Rescale.name if rule == AUTO else rule
    choice = tuned if gamma is None else {"gamma": gamma, "rule": named, "chosen_on": "given"}
    if choice is None:
        return None
    most = np.inf if RULES[choice["rule"]].grows and choice["chosen_on"] != "given" else LARGEST_GAMMA
    if not 0 <= choice["gamma"] <= most or not np.isfinite(choice["gamma"]):
        raise LevelheadError(
            f"expected a gamma from 0 to {LARGEST_GAMMA:g}, got {choice['gamma']:g}",
            parameter="tuned" if gamma is None else "gamma",
        )
    return choice | {"gamma": float(choice["gamma"])}


def tune_command(subject: Subject, *more: str) -> str:
    """Return the command that tunes on the files of a page, under the names that they have, with more options."""
    if place := subject.files.get("run") or subject.files.get("snapshot"):
        return " ".join(["levelhead report", shlex.quote(place), *more, "-o page.html"])
    files = subject.files or {"logits": "logits.npy", "labels": "labels.npy", "counts": "counts.json"}
    given = [
        f"--{what} {shlex.quote(files[what])}" for what in ("logits", "labels", "counts", "norms") if what in files
    ]
    if "counts" not in files:
        given.append(f"--counts {counts_in_command(subject)}")
    if subject.kind == "probabilities":
        given.append("--kind probabilities")
    if subject.target is not None:
        given.append(f"--target {','.join(map(repr, subject.target.tolist()))}")
    return " ".join(["levelhead tune", *given, *_own_options(subject.choice, more), *more, "-o", TUNED])


def counts_in_command(subject: Subject) -> str:
    """Return the training counts as a command takes them: their file, or themselves if they are few."""
    if "counts" in subject.files:
        return shlex.quote(subject.files["counts"])
    known = subject.classes <= 20 and bool(subject.views)
    return ",".join(map(str, subject.counts.tolist())) if known else "counts.json"


def _own_options(choice: ChoiceRecord, more: tuple[str, ...]) -> list[str]:
    """Return the options of a choice that are known: its metric, and its rule unless that was chosen too."""
    metric, found = choice.get("metric") or "balanced_error", []
    if metric not in ("balanced_error", "cost"):
        found.append(f"--metric {metric}")
    if len(choice.get("candidates") or ()) < 3 and not any(option.startswith("--rule") for option in more):
        found.append(f"--rule {choice['rule']}")
    return found
