"""Every sentence of the page. The verdict is in the words of `Tuned`, as the terminal prints it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..core.rules import RULES
from .subject import Subject

Status = Literal["better", "worse", "unclear", "test"]
MOST_NAMED = 40  # classes that the chart of recalls names; of more, it has dots and running means
SIGNS: dict[Status, str] = {"better": "✓", "worse": "✕", "unclear": "?", "test": "!"}

TERMS = {
    "Accuracy": "Share of all samples that are predicted right. Frequent classes dominate it.",
    "Balanced accuracy": "The mean recall of the classes: the rarest counts as much as the most "
    "frequent. The balanced error is 100 % less this.",
    "Recall": "Of the samples of a class, the share that is predicted to be of it.",
    "Precision": "Of the samples predicted to be of a class, the share that is of it.",
    "Macro F1": "The mean over the classes of F1, which is high only if both recall and precision "
    "are.",
    "Predicted share": "The share of all predictions that are this class.",
    "Gain, interval": "How much better the metric is on samples that the fit has not seen. If the "
    "experiment were repeated, 95 of 100 such 95 % intervals would hold the true gain; one that "
    "holds 0 says that there may be none.",
    "Temperature": "What adjusted scores are divided by before the softmax, so that a confidence "
    "of 80 % is right 80 times in 100.",
    "Held-out, test": "Samples the model was not trained on. Held-out samples may be used to "
    "choose; test samples only to judge, or the judgment is worth nothing.",
}
ON_TEST = (
    "This was chosen on test labels, so the numbers here flatter the adjusted model and are no "
    "test result. Choose on held-out samples instead."
)


@dataclass(frozen=True)
class Number:
    """One measure before and after, of which more is better."""

    title: str
    before: float
    after: float

    @property
    def change(self) -> float:
        """In points."""
        return 100 * (self.after - self.before)


def status(subject: Subject) -> Status:
    """Return by what sign and color the verdict is shown."""
    tuned = subject.tuned
    if tuned.chosen_on == "test":
        return "test"
    if tuned.verdict == "worse":
        return "worse"
    if tuned.verdict in ("better", "likely better"):
        return "better"
    return "unclear"


def numbers(subject: Subject) -> list[Number]:
    """Return what is known of all classes together."""
    evidence = subject.tuned.evidence
    if evidence is None:
        return []
    if subject.tuned.multilabel:
        before, after = subject.tuned.tables
        return [
            Number("Recall, mean over labels", *_means(before.recall, after.recall)),
            Number("Precision, mean over labels", *_means(before.precision, after.precision)),
        ]
    before, after = evidence.before, evidence.after
    return [
        Number("Accuracy", float(before.accuracy), float(after.accuracy)),
        Number(
            "Balanced accuracy", float(before.balanced_accuracy), float(after.balanced_accuracy)
        ),
        Number("Macro F1", float(before.macro_f1), float(after.macro_f1)),
    ]


def _means(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """Return the means of the labels of which both are known."""
    both = ~np.isnan(before) & ~np.isnan(after)
    if not both.any():
        return 0.0, 0.0
    return float(before[both].mean()), float(after[both].mean())


def reasons(subject: Subject) -> dict[str, str]:
    """Return the rest of what a choice says of itself, and what its numbers are measured on."""
    tuned = subject.tuned
    facts = tuned.facts()
    said_above = ("gain", "price")
    lines = {name: text for name, text in facts.items() if name not in said_above}
    lines["rule"] = f"{lines['rule']}: {RULES[tuned.rule].sentence}"
    if tuned.evidence is not None:
        lines["measured on"] = _measured(subject)
    return lines


def _measured(subject: Subject) -> str:
    evidence = subject.tuned.evidence
    n = 0 if evidence is None else evidence.n
    if subject.measured is not None:
        return f"{n:,} {subject.measured} samples that had no part in the choice"
    return f"the same {n:,} samples, each predicted by a fit that has not seen it"


def warnings(subject: Subject) -> list[str]:
    """Return the warnings, the one about test labels first, without the names of their kinds."""
    lines = []
    if subject.tuned.chosen_on == "test":
        lines = [ON_TEST]
    for line in subject.tuned.warnings:
        kind, _, text = line.partition(": ")
        lines.append(text if kind.endswith("Warning") else line)
    return [f"{line[:1].upper()}{line[1:]}" for line in lines]


def rarity(subject: Subject) -> str:
    """Return by what classes are called rare."""
    if subject.rare_by_counts:
        return "training samples"
    return "samples here"


def recall_note(subject: Subject) -> str:
    """Return what the chart of recalls shows."""
    what = "labels" if subject.tuned.multilabel else "classes"
    order = f"The {what} from the most frequent on the left to the rarest, by {rarity(subject)}."
    if subject.classes > MOST_NAMED:
        order += " Lines are means over neighbors."
    return order


def strength_note(subject: Subject) -> str:
    """Return what the chart over the strength shows."""
    rule = RULES[subject.tuned.rule]
    exact = "Exact at every strength at which a prediction changes; 0 is the model as it is."
    return f"{rule.title}: {rule.sentence}. {exact}{in_sample(subject)}"


def in_sample(subject: Subject) -> str:
    """Return what is to be said of numbers from the fit on all samples shown."""
    if subject.measured is not None:
        return ""
    return " By the fit on all of these samples, so a little better than new samples will be."


def confusion_note(subject: Subject) -> str:
    """Return what the confusions show."""
    return f"The model as it is, and adjusted.{in_sample(subject)}"


def calibration_note(subject: Subject, shown: int, of: int) -> str:
    """Return how samples weigh where calibration is shown, and on how many it is."""
    tuned = subject.tuned
    weigh = "Every class weighs the same"
    if tuned.target is not None:
        weigh = "Classes weigh as the target says"
    elif tuned.evidence is not None and tuned.evidence.metric.as_they_come:
        weigh = "Samples weigh alike"
    part = ""
    if shown != of:
        part = f", on {shown:,} of the {of:,} samples"
    if tuned.temperature is None:
        return f"{weigh}{part}."
    divide = f"Divide adjusted scores by the temperature {tuned.temperature:.4g}"
    return f"{weigh}{part}. {divide} for probabilities."


def share_text(share: float) -> str:
    """Return a share as the terminal prints it; a dash for one that is not known."""
    if share != share:
        return "\N{EN DASH}"
    return f"{share:.1%}"


def points(change: float) -> str:
    """Return a change in points, with its sign."""
    if change != change:
        return ""
    text = f"{change:+.1f}"
    if float(text) == 0:
        return "±0.0"
    return text.replace("-", "\N{MINUS SIGN}")
