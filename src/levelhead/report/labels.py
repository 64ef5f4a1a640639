"""A model with several labels per sample, on one set of samples: each label's threshold, before and after."""

import json
from collections.abc import Sequence

import numpy as np

from ..path.metrics import ERRORS, TITLES, gain_text
from .subject import ChoiceRecord, LabelRow, LabelSubject
from .use_it import UNDO, adjust_command, label_tune_command
from .verdict import LEAVE, Number, Status, Verdict, bare_alarms

SENTENCE = "a number of its own is added to each label's logit, which moves its threshold"


def label_rows(
    scores: np.ndarray, truth: np.ndarray, choice: ChoiceRecord, names: Sequence[str] | None
) -> tuple[LabelRow, ...]:
    """Return a row for each label, of logits and labels [N, K]."""
    offset = np.array(choice["offset"], np.float64)
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
    return tuple(rows)


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
