"""A model with several labels per sample, on one set of samples: each label's threshold, before and after."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..choice.tuned import Tuned
from ..core.array import Array
from ..core.choices import Kind
from ..core.counts import Counts
from ..core.warnings import quiet
from ..labels.label_inputs import check_label_scores, check_label_table
from ..labels.tune_labels import tune_labels
from ..path.metrics import ERRORS, TITLES, gain_text
from .alarms import bare_alarms
from .rule_view import ChoiceRecord
from .use_it import UNDO, adjust_command, label_tune_command
from .verdict import LEAVE, Number, Status, Verdict

SENTENCE = "a number of its own is added to each label's logit, which moves its threshold"


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


def of_labels(
    logits: Array,
    labels: Array,
    counts: Counts | None = None,
    *,
    title: str = "model",
    tuned: Tuned | ChoiceRecord | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    samples: str = "held-out",
    apart: bool = False,
    bootstrap: int = 1000,
    facts: dict[str, str] | None = None,
    model: str = "",
) -> LabelSubject:
    """Return the subject of a model with several labels per sample.

    Args:
        logits, labels: [N, K] each; labels are 0 and 1.
        counts: training samples that have each label; None counts those given here.
        tuned: what `tune` returned with the task `multilabel`, or its `to_dict()`; chosen on these samples if None.
        title, names, kind, samples, apart, bootstrap, facts, model: as in `of_logits`.

    Returns:
        The subject, for `write`.

    >>> subject = of_labels([[-1.0], [-2.0], [-3.0], [-2.5]], [[1], [1], [0], [0]], names=["rare"], bootstrap=0)
    >>> subject.rows[0].recall, round(subject.rows[0].threshold, 3)
    ((0.0, 1.0), 0.095)
    """
    if tuned is None:
        with quiet():  # the page shows the warnings
            tuned = tune_labels(
                logits,
                labels,
                counts,  # type: ignore[arg-type]
                names=names,
                kind=kind,
                chosen_on=samples,
                bootstrap=bootstrap,
            )
    choice = tuned.to_dict() if isinstance(tuned, Tuned) else tuned
    truth = check_label_table(labels)
    scores, offset = check_label_scores(logits, truth, kind), np.array(choice["offset"], np.float64)
    known = names or choice.get("names") or [str(k) for k in range(truth.shape[1])]
    each, metric = choice.get("labels") or [{}] * truth.shape[1], choice.get("metric") or "balanced_error"
    numbers = choice.get("counts") or truth.sum(axis=0).tolist()
    rows = []
    for k in range(truth.shape[1]):
        before, after = (_rates(scores[:, k] + by > 0, truth[:, k]) for by in (0.0, offset[k]))
        between = each[k].get("interval")
        rows.append(
            LabelRow(
                str(known[k]),
                float(numbers[k]),
                int(truth[:, k].sum()),
                float(1 / (1 + np.exp(offset[k]))),
                (before[0], after[0]),
                (before[1], after[1]),
                "" if between is None else gain_text(metric, each[k]["gain"], (between[0], between[1])),
            )
        )
    return LabelSubject(title, choice, tuple(rows), len(truth), apart, facts or {}, {}, model)


def label_verdict(subject: LabelSubject) -> Verdict:
    """Return the verdict on a multi-label model, in words."""
    choice, rows = subject.choice, subject.rows
    metric, between = choice.get("metric") or "balanced_error", choice.get("gain_interval")
    moved = sum(row.threshold != 0.5 for row in rows)
    recall, precision = (_means([getattr(row, name) for row in rows]) for name in ("recall", "precision"))
    half = sorted(rows, key=lambda row: row.count)[: max(1, len(rows) // 2)]
    rare = _means([row.recall for row in half])
    own = (
        []
        if subject.apart or metric == "cost" or choice.get("value") is None
        else [choice["value_at_zero"], choice["value"]]
    )
    better = "lower" if metric in ERRORS else "higher"
    title = f"{TITLES[metric][:1].upper()}{TITLES[metric][1:]}, mean over labels"
    numbers = [
        *([Number("metric", title, own[0], own[1], better=better)] if own else []),
        Number("recall", "Recall, mean over labels", *recall, better="higher"),
        Number(
            "precision",
            "Precision, mean over labels",
            *precision,
            better="higher",
            note="of labels predicted before and after",
        ),
        Number("rare", "Recall, rarer half of the labels", *rare, better="higher"),
    ]
    status, headline = _decide_labels(choice, moved, rare[1] - rare[0])
    lines = {
        "What changes": f"{moved:,} of {len(rows):,} labels get a threshold of their own. The mean recall goes from "
        f"{recall[0]:.2%} to {recall[1]:.2%}, the mean precision from {precision[0]:.2%} to {precision[1]:.2%}."
    }
    if between is not None and choice.get("gain") is not None:
        lines["How certain"] = (
            f"On new samples like these, expect a gain in {TITLES.get(metric, metric)}, over all labels, of "
            f"{gain_text(metric, choice['gain'], (between[0], between[1]))} ({100 * (choice.get('level') or 0.95):g} % "
            "confidence)."
        )
    part = "that had no part in the choice" if subject.apart else "that the thresholds were chosen on"
    lines["How it was chosen"] = (
        f"Each label's threshold is the middle of the best ones on {choice.get('n') or subject.n:,} "
        f"{choice['chosen_on']} samples; the numbers here are of {subject.n:,} samples {part}."
    )
    return Verdict(status, headline, lines, tuple(numbers), bare_alarms(choice))


def label_code(subject: LabelSubject) -> dict[str, str]:
    """Return the command and the code that apply what was chosen, as `code_to_use` does."""
    apply = adjust_command(subject.model, subject.tuned_file, subject.choice)
    if subject.tuned_file:
        what, before = json.dumps(subject.tuned_file), ""
    else:
        what, before = "tuned", "tuned = lh.tune_labels(logits, labels, counts)    # those of this page\n"
        apply = f"{label_tune_command(subject.files, subject.choice)}\n{apply}"
    return {"command": apply, "python": f"import levelhead as lh\n\n{before}adjusted = lh.adjust_(model, {what}){UNDO}"}


def _decide_labels(choice: ChoiceRecord, moved: int, rare: float) -> tuple[Status, str]:
    between = choice.get("gain_interval")
    if choice["chosen_on"] == "test":
        return "warn", "Do not decide on this page: the thresholds were chosen on test labels"
    if not moved:
        return "keep", f"{LEAVE}: every label is best as it is"
    if choice.get("floors_met_at_zero") is not False and (between is None or between[0] <= 0):
        return "unclear", f"{LEAVE} for now: a gain is not certain"
    if rare <= 0:
        return "unclear", f"{LEAVE} if rare labels matter: their recall does not rise"
    metric = choice.get("metric") or "balanced_error"
    return "ship", f"Ship the new thresholds, if {TITLES.get(metric, metric)}, over all labels, is what matters"


def _rates(predicted: np.ndarray, true: np.ndarray) -> tuple[float | None, float | None]:
    """Return recall and precision; None where there is no sample to tell."""
    hits = float((predicted & (true > 0)).sum())
    return tuple(hits / total if (total := float(some.sum())) else None for some in (true > 0, predicted))  # type: ignore[return-value]


def _means(pairs: Sequence[tuple[float | None, float | None]]) -> tuple[float, float]:
    """Return the means before and after, over the labels of which both are known."""
    known = [pair for pair in pairs if None not in pair] or [(0.0, 0.0)]
    before, after = np.mean(np.array(known, np.float64), axis=0)
    return float(before), float(after)
