"""Every sentence of the page, each made of what is known of a subject.

The verdict, the gain and the price are not here: page.html asks `Tuned` for them, so that they are
the same as in the terminal.

Sentences are whole, and written for someone who has not read the docs: whoever gets the page by mail.
Every term that needs explaining is in `TERMS`, which the page has as a glossary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..core.tuned import rule_of
from .subject import Subject

Status = Literal["better", "worse", "unclear", "test"]
MOST_NAMED = 40  # classes that the chart of recalls names; of more, it has dots and running means
# Beside the verdict, so that it does not need its color.
SIGNS: dict[Status, str] = {"better": "✓", "worse": "✕", "unclear": "?", "test": "!"}

# In the order of the page: what it shows first comes first.
TERMS = {
    "Accuracy": "The share of all samples that are predicted right, in the mix of the target where "
    "one is given. Frequent classes dominate it.",
    "Balanced accuracy": "The mean recall of the classes: the rarest counts as much as the most "
    "frequent. The balanced error is 100 % minus this.",
    "Recall": "Of all samples of a class, the share that is predicted as that class.",
    "Precision": "Of all samples predicted as a class, the share that belongs to it.",
    "Macro F1": "The mean F1 of the classes. The F1 of a class is high only if both its recall and "
    "its precision are.",
    "Predicted share": "The share of all samples that are predicted as this class.",
    "Gain, interval": "How much the metric improves on samples that the fit has not seen. If the "
    "experiment were repeated many times, 95 % of the intervals would contain the true gain, or as many "
    "as is said beside it; "
    "an interval that contains 0 says that there may be none.",
    "Temperature": "Divide adjusted scores by this before the softmax: a confidence of 80 % is "
    "then right about 80 times in 100.",
    "Held-out, test": "Samples the model was not trained on. Held-out samples may be used to "
    "choose; test samples only to judge, or the judgment is worth nothing.",
}
# Of several labels per sample, none of these is shown.
ONE_CLASS_TERMS = ("Accuracy", "Balanced accuracy", "Temperature")
# Without labels, only these are.
UNJUDGED_TERMS = ("Predicted share", "Held-out, test")
WITHOUT_FEATURES = (
    "Confusions and calibration are left out: this is for a head without a bias, and without the "
    "features that it was chosen with, what arrives of each offset is not known."
)
ON_TEST = (
    "This was chosen on test labels, so the numbers here flatter the adjusted model and are no "
    "test result. Choose on held-out samples instead."
)


@dataclass(frozen=True)
class Number:
    """One measure before and after, as a share from 0 to 1; more is better."""

    title: str  # a term of `TERMS`, where there is one
    before: float
    after: float

    @property
    def change(self) -> float:
        """How much it changes, in percentage points."""
        return 100 * (self.after - self.before)


def status(subject: Subject) -> Status:
    """Return by which sign and color the verdict is shown.

    A choice made on test labels has a status of its own: whatever it gains there says nothing.
    """
    tuned = subject.tuned
    if tuned.chosen_on == "test":
        return "test"
    if tuned.verdict == "worse":
        return "worse"
    if tuned.verdict in ("better", "likely better"):
        return "better"
    return "unclear"


def numbers(subject: Subject) -> list[Number]:
    """Return the measures over all classes; none if the choice was not judged.

    Always the same three, whatever it was chosen for: who raises one of them should see the others.
    """
    evidence = subject.tuned.evidence
    if evidence is None:
        return []
    if subject.tuned.multilabel:
        before, after = subject.tuned.tables
        return [
            Number("Recall, mean over labels", *_means(before.recall, after.recall)),
            Number("Precision, mean over labels", *_means(before.precision, after.precision)),
        ]
    before = evidence.before
    after = evidence.after
    return [
        Number("Accuracy", float(before.accuracy), float(after.accuracy)),
        Number(
            "Balanced accuracy", float(before.balanced_accuracy), float(after.balanced_accuracy)
        ),
        Number("Macro F1", float(before.macro_f1), float(after.macro_f1)),
    ]


def _means(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """Return the means over those labels that have a value both before and after."""
    has_values = ~np.isnan(before) & ~np.isnan(after)
    if not has_values.any():
        return 0.0, 0.0
    return float(before[has_values].mean()), float(after[has_values].mean())


def unlike(subjects: Sequence[Subject]) -> str:
    """Return in which way models side by side were judged otherwise, to follow a sentence; "" where alike."""
    judged = [subject.tuned for subject in subjects if subject.tuned.evidence is not None]
    targets = {tuned.target for tuned in judged}
    numbers = {tuned.evidence.n for tuned in judged if tuned.evidence is not None}
    text = ""
    if len(targets) > 1:
        text += " Accuracy and macro F1 are in the mix of each model's own target, and cannot be compared."
    if len(numbers) > 1:
        text += " They are judged on different samples."
    return text


def reasons(subject: Subject) -> dict[str, str]:
    """Return sentences by title: what a choice says of itself, and what its numbers are measured on.

    Its gain and its price are left out: they stand at the top of the page.
    """
    tuned = subject.tuned
    # What a choice says of itself, then what only the page knows.
    lines = {name: text for name, text in tuned.facts().items() if name not in ("gain", "price")}
    lines["rule"] = f"{lines['rule']}: {rule_of(tuned).sentence_for(tuned.target)}"
    if tuned.evidence is not None:
        n = tuned.evidence.n
        if tuned.multilabel:
            # There it counts decisions; each label has all samples, without it and with it.
            n = int(tuned.evidence.before.sizes[0].sum())
        lines["measured on"] = _measured(subject, n)
    return lines


def _measured(subject: Subject, n: int) -> str:
    """Return what the numbers of the page are measured on."""
    if subject.measured is not None:
        # A choice without labels may have been made on these very samples.
        part = "that had no part"
        if subject.tuned.chosen_on == "unlabelled":
            part = "whose labels had no part"
        return f"{n:,} {subject.measured} samples {part} in the choice"
    return f"the same {n:,} samples, each predicted by a fit that has not seen it"


def warnings(subject: Subject) -> list[str]:
    """Return the warnings as sentences, the one about test labels first.

    Those of a choice come as "LeakageWarning: held-out logits ...": the class is for programs.
    """
    lines = []
    if subject.tuned.chosen_on == "test":
        lines.append(ON_TEST)
    if _lacks_features(subject):
        lines.append(WITHOUT_FEATURES)
    for line in subject.tuned.warnings:
        kind, _, text = line.partition(": ")
        if kind.endswith("Warning"):
            line = text
        lines.append(line)
    return [f"{line[:1].upper()}{line[1:]}" for line in lines]


def _lacks_features(subject: Subject) -> bool:
    """Return whether samples were given, but their features were not, and are needed."""
    is_without_bias = subject.tuned.reach is not None and subject.measured is None
    return is_without_bias and subject.labels is not None and subject.logits is None


def terms(subjects: Sequence[Subject]) -> dict[str, str]:
    """Return the terms that a page explains, by name: those of `TERMS` that it uses."""
    if subjects and all(subject.tuned.evidence is None for subject in subjects):
        return {name: TERMS[name] for name in UNJUDGED_TERMS}
    if not subjects or not all(subject.tuned.multilabel for subject in subjects):
        return TERMS
    return {name: meaning for name, meaning in TERMS.items() if name not in ONE_CLASS_TERMS}


def rarity(subject: Subject) -> str:
    """Return what it is that a rare class has few of."""
    if subject.rare_by_counts:
        return "training samples"
    return "samples here"


def recall_note(subject: Subject) -> str:
    """Return what the chart of recalls shows: which classes stand where, and what the lines are if there are any."""
    noun = "labels" if subject.tuned.multilabel else "classes"
    order = f"The {noun} from the most frequent on the left to the rarest, by {rarity(subject)}."
    if subject.tuned.background is not None:
        order += (
            f" Before them stands {subject.name(subject.tuned.background)}, which is left alone."
        )
    if subject.classes > MOST_NAMED:
        order += " Lines are means over neighbors."
    return order


def strength_note(subject: Subject) -> str:
    """Return what the chart over the strength shows: what the rule does, and what the steps of the curves are."""
    rule = rule_of(subject.tuned)
    exact = "The curves step exactly where a prediction changes; 0 is the model as it is."
    what = rule.sentence_for(subject.tuned.target)
    return f"{rule.title}: {what}. {exact}{in_sample(subject)}"


def in_sample(subject: Subject) -> str:
    """Return what to add to numbers that are not cross-fitted; nothing on samples new to the fit.

    The table of classes is cross-fitted; confusions and the chart over a strength are of the one fit that
    is used.
    """
    if subject.measured is not None:
        return ""
    return " This is the fit on all of these samples, so it looks a little better than on new ones."


def confusion_note(subject: Subject) -> str:
    """Return what the confusions show, and why their diagonal may differ a little from the table's recalls."""
    return f"The model as it is, and adjusted.{in_sample(subject)}"


def calibration_note(subject: Subject, shown: int, of: int) -> str:
    """Return how samples weigh in the calibration shown, and how many of them it is counted on.

    Args:
        subject: of which the goal says how samples weigh, as `calibration.sample_weights` has it.
        shown: how many samples are counted.
        of: how many there are.
    """
    tuned = subject.tuned
    sentences = ["Every class weighs the same."]
    if tuned.target is not None:
        sentences = ["Classes weigh as the target says."]
    elif tuned.evidence is not None and tuned.evidence.metric.as_they_come:
        sentences = ["Every sample weighs the same."]
    if shown != of:
        sentences.append(f"Counted on {shown:,} of the {of:,} samples.")
    if tuned.temperature is not None:
        divide = f"divide adjusted scores by the temperature, {tuned.temperature:.4g}"
        sentences.append(f"For probabilities, {divide}.")
    return " ".join(sentences)


def share_text(share: float) -> str:
    """Return a share as the terminal prints it; a dash for one that is not known.

    >>> share_text(0.1234)
    '12.3%'
    """
    if share != share:
        return "\N{EN DASH}"
    return f"{share:.1%}"


def points(change: float) -> str:
    """Return a change in points, with its sign: a true minus, and ± where it rounds to 0.

    >>> points(1.26), points(-0.04)
    ('+1.3', '±0.0')
    """
    if change != change:
        return ""
    text = f"{change:+.1f}"
    if float(text) == 0:
        return "±0.0"
    return text.replace("-", "\N{MINUS SIGN}")
