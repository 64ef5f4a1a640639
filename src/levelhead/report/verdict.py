"""The verdict in words: what changed, by how much, how certain that is, which classes pay for it, and warnings."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from ..choice.diagnostics import Verdict as GainVerdict
from ..choice.path_metrics import ERRORS, TITLES, gain_text, value_form
from ..core.rules import RULES
from ..show.style import short
from .subject import ChoiceRecord, LabelSubject, Subject, rule_title
from .use_it import MODEL, OF_A_RUN, tune_command

Status = Literal["ship", "unclear", "keep", "warn"]
SMALL_GAIN = 0.01  # one point of balanced error
LEAVE, NOT_SEEN = "Leave the model as it is", "no difference is seen"
# for each kind of warning: its title, options that help or a whole command, and files with which those are of no use
HELP: dict[str, tuple[str, ...]] = {
    "LeakageWarning": ("These samples look like training data.", ""),
    "NegativeLogitsWarning": ("Scaling moves some classes the wrong way.", "--rule shift"),
    "BinaryHeadWarning": ("Scaling cannot change this model's predictions.", "--rule shift"),
    "NormWarning": ("The weight norms do not follow the counts.", "--rule shift"),
    "MissingClassWarning": ("A class has no sample here.", ""),
    "CountsWarning": (
        "The counts may not be those of training.",
        "levelhead inspect {model} --counts {counts}",
    ),
    "NeverPredictedWarning": (
        "Some classes are hardly ever predicted.",
        "--labels labels.npy",
        "labels",
    ),
    "PriorWarning": ("The shares of the classes in use are uncertain.", "--target 0.5,0.3,0.2"),
    "RangeWarning": (
        "The strength lies at the end of the range that was searched.",
        "--max {wider:g}",
        *OF_A_RUN,
    ),
    "ScaleWarning": ("The strength may be on the wrong scale.", "--rule auto"),
    "PrecisionWarning": ("Half precision could change predictions.", "levelhead inspect {model}"),
}


@dataclass(frozen=True)
class Number:
    """One measure before and after, as shares of 1; `better` says whether lower or higher is good."""

    key: str
    title: str
    before: float
    after: float
    better: Literal["lower", "higher"] = "lower"
    note: str = ""


@dataclass(frozen=True)
class Alarm:
    """A warning: what is wrong in a few words, the whole line, and a command to copy, or ""."""

    title: str
    text: str
    command: str = ""


@dataclass(frozen=True)
class PageVerdict:
    """The top of the page."""

    status: Status
    headline: str
    lines: dict[str, str]
    numbers: tuple[Number, ...]
    alarms: tuple[Alarm, ...]


def gain(
    before: np.ndarray, after: np.ndarray, labels: np.ndarray, mass: np.ndarray, level: float = 0.95
) -> tuple[float, float, float]:
    """Return by how much the balanced error falls at a gamma that these samples did not choose, and its interval."""
    # sum_c m_c (up_c - down_c) / n_c over samples that turn right and wrong; for the interval, one more of each is
    # added to every class, so that a class of one sample is not taken to be certain
    up, down, n = (
        np.bincount(labels, each, len(mass)) for each in (after & ~before, before & ~after, None)
    )
    mean = float((mass * (up - down) / np.maximum(n, 1)).sum())
    variance = ((up + down + 2) / (n + 2) - ((up - down) / (n + 2)) ** 2) / (n + 2)
    spread = NormalDist().inv_cdf((1 + level) / 2) * float(np.sqrt((mass**2 * variance).sum()))
    return mean, mean - spread, mean + spread


def verdict(subject: Subject) -> PageVerdict:
    """Return the verdict on a subject."""
    if subject.path is None:
        return _verdict_without_labels(subject)
    path, gamma = subject.path, subject.gamma
    before, after = path.right(0.0), path.right(gamma)
    said = subject.verdict
    if subject.apart or said is None or subject.metric != "balanced_error":
        mean, *between = gain(before, after, path.labels, subject.mass, subject.level)
        balanced = GainVerdict(mean, (between[0], between[1]), subject.level)
        said = balanced if said is None or subject.metric == "balanced_error" else said
    else:  # they allow for the choice on these samples
        balanced, between = said, subject.choice["gain_interval"]
    was, now = path.at(0.0), path.at(gamma)
    rare, common = (
        [float(np.nanmean(x.class_accuracy[half])) for x in (was, now)] for half in subject.halves
    )
    n = subject.counts
    mix = [
        1 - float(np.nansum(n * x.class_accuracy) / n[subject.present].sum()) for x in (was, now)
    ]
    weights = (
        "every class weighs the same"
        if subject.target is None
        else "classes weigh as the target says"
    )
    half, of = ("class", "") if subject.classes == 2 else ("half", " of the classes")
    numbers = (
        Number("balanced", "Balanced error", was.balanced_error, now.balanced_error, note=weights),
        Number(
            "error", "Error", was.error, now.error, note=f"on these {len(path.labels):,} samples"
        ),
        Number(
            "rare", f"Recall, rarer {half}", *rare, better="higher", note=_describe_half(subject, 0)
        ),
        Number(
            "common",
            f"Recall, more frequent {half}",
            *common,
            better="higher",
            note=_describe_half(subject, 1),
        ),
    )
    changes = [
        f"from {percent_text(number.before)} to {percent_text(number.after)}" for number in numbers
    ]
    status, headline = _decide(subject, said, bool((before != after).any()), rare[1] - rare[0])
    lines = {
        "What changes": f"The recall of the rarer {half}{of} goes {changes[2]}, that of the more frequent "
        f"{half} {changes[3]}. The error goes {changes[1]}, the balanced error {changes[0]}.",
        "How certain": _own_certainty(subject) or _certainty(balanced, between, subject.level),
        "Who pays": _who_pays(subject, was.class_accuracy, now.class_accuracy),
        "If imbalance stays": _if_imbalance_stays(mix, subject),
        "How it was chosen": _how_chosen(subject),
    }
    return PageVerdict(status, headline, lines, numbers, alarms(subject))


def percent_text(share: float) -> str:
    """Return a share as the page's script writes it: ties round up."""
    return f"{100 * share + 1e-9:.2f}\N{NO-BREAK SPACE}%"


def _decide(
    subject: Subject, said: GainVerdict, changed: bool, rare: float | None
) -> tuple[Status, str]:
    """Return status and headline: `changed` if any prediction is, `rare` how much recall the rarer half gains."""
    choice, balanced = subject.choice, subject.metric == "balanced_error"
    if choice["chosen_on"] == "test":
        return "warn", "Do not decide on this page: gamma was chosen on test labels"
    if subject.gamma == 0 and choice.get("candidates"):
        return "keep", f"{LEAVE}: no adjustment did better on samples that it was not fitted on"
    if not changed:
        return "keep", f"{LEAVE}: the adjustment changes no prediction"
    if choice.get("floors_met_at_zero") is False:
        return (
            "ship",
            "Ship the adjusted model: as trained, it misses the least recall that was asked for",
        )
    if (
        not subject.apart
        and choice["chosen_on"] not in ("given", "unlabelled")
        and subject.verdict is None
    ):
        return "unclear", f"{LEAVE} for now: how certain the gain is has not been estimated"
    if said == "worse":
        return "keep", f"{LEAVE}: the adjustment makes it worse"
    if said.expected_gain <= 0 or subject.worthwhile is False:
        return "unclear", f"{LEAVE} for now: {NOT_SEEN}"
    probably = (
        "" if said == "better" else f": it is probably better ({chance_text(said.probability)})"
    )
    if not balanced:
        matter = TITLES.get(subject.metric, subject.metric)
        return "ship", f"Ship the adjusted model, if {matter} is what matters{probably}"
    if subject.target is None and rare is not None and rare <= 0:
        half = "class" if subject.classes == 2 else "half of the classes"
        return "unclear", f"{LEAVE} if rare classes matter: the rarer {half} gains nothing"
    if said.expected_gain < SMALL_GAIN:
        better = (
            "better" if said == "better" else f"probably better ({chance_text(said.probability)})"
        )
        points = f"{100 * said.expected_gain:.2f} points of balanced error"
        return "ship", f"The adjusted model is {better}, but only by {points}"
    matter = (
        "rare classes matter as much as frequent ones"
        if subject.target is None
        else "classes occur as assumed"
    )
    return "ship", f"Ship the adjusted model, if {matter}{probably}"


def chance_text(probability: float) -> str:
    """Return a probability in percent, never as certain as 0 or 100."""
    percent = round(100 * probability)
    return (
        "under 1\u00a0%"
        if percent < 1
        else "over 99\u00a0%"
        if percent > 99
        else f"{percent}\u00a0%"
    )


def _own_certainty(subject: Subject) -> str | None:
    """Return how certain the gain is in the metric that was asked for, if that is not the balanced error."""
    choice, metric, said = subject.choice, subject.metric, subject.verdict
    if subject.apart or metric == "balanced_error" or said is None or choice.get("value") is None:
        return None
    before, after = (format(choice[key], value_form(metric)) for key in ("value_at_zero", "value"))
    change = f"{TITLES.get(metric, metric)} goes from {before} to {after}"
    return f"On these samples, {change}. {_expected(subject, said, metric)}"


def _expected(subject: Subject | LabelSubject, said: GainVerdict, of: str) -> str:
    """Return the gain to expect by the metric of a choice, its interval, and how likely it is."""
    low, high = subject.choice["gain_interval"]
    expected = gain_text(subject.metric, said.expected_gain, (low, high))
    sure = f"{100 * subject.level:g}\u00a0% confidence"
    return (
        f"On new samples like these, expect a gain in {of} of {expected} ({sure}). {_chance(said)}"
    )


def _chance(said: GainVerdict) -> str:
    return f"The probability that it will be better at all is {chance_text(said.probability)}."


def _certainty(said: GainVerdict, between: Sequence[float], level: float) -> str:
    low, high = between
    change = f"anywhere from {100 * high:.2f} points lower to {-100 * low:.2f} points higher"
    if low > 0:
        change = f"between {100 * low:.2f} and {100 * high:.2f} points lower"
    elif high < 0:
        change = f"between {-100 * high:.2f} and {-100 * low:.2f} points higher"
    most = f"{100 * abs(said.expected_gain):.2f} points {'lower' if said.expected_gain >= 0 else 'higher'}"
    sure = f"({100 * level:g}\u00a0% confidence); expect {most}. {_chance(said)}"
    return f"On new samples like these, the balanced error will be {change} {sure}"


def _who_pays(subject: Subject, was: np.ndarray, now: np.ndarray) -> str:
    loss = np.nan_to_num(was - now)
    losers, worst = int((loss > 0).sum()), int(np.argmax(loss))
    if losers == 0:
        return "Nobody: no class has a lower recall than before."
    # the name is cut if it is long, and isolated from the text direction of the rest
    name = f"“\N{FIRST STRONG ISOLATE}{short(subject.name(worst), 60)}\N{POP DIRECTIONAL ISOLATE}”"
    worst_of_all = (
        f"most of all {name}, from {percent_text(was[worst])} to {percent_text(now[worst])}"
    )
    return f"{losers:,} of {len(subject.present):,} classes have a lower recall than before, {worst_of_all}."


def _if_imbalance_stays(mix: list[float], subject: Subject) -> str:
    if np.all(subject.counts == subject.counts[0]):
        return "The training counts are all equal, so there is no imbalance to level."
    change = f"from {percent_text(mix[0])} to {percent_text(mix[1])}"
    text = f"Where classes are as imbalanced as in training, expect the error to go {change}"
    keep = ". If the model will be used there, and no class matters more than another, keep it as it is."
    return text + (keep if mix[1] > mix[0] else ", which is no worse.")


def _how_chosen(subject: Subject) -> str:
    choice, rule = subject.choice, rule_title(subject.choice["rule"])
    on, n = choice["chosen_on"], f"{choice['n']:,} " if choice.get("n") else ""
    between = choice.get("interval")
    likely = (
        f" ({100 * subject.level:g} % interval {between[0]:.3f} to {between[1]:.3f})"
        if between
        else ""
    )
    strength = (
        f"{rule}: {RULES[choice['rule']].text(choice['gamma'], choice.get('second'))}{likely}"
    )
    if on == "given":
        chosen = f"{rule}: gamma = {subject.gamma:g} was given by hand"
    elif on == "unlabelled":
        equally = "" if subject.target is not None else " (all equally often)"
        chosen = f"{strength} was chosen on {n}samples without their labels, so that each "
        chosen += f"class is predicted as often as it is assumed to occur{equally}"
    else:
        what = {"test": "TEST samples, with their labels", "held-out": "held-out samples"}.get(
            on, f"{on} samples"
        )
        by = (
            ""
            if subject.metric == "balanced_error"
            else f" by {TITLES.get(subject.metric, subject.metric)}"
        )
        among = " among those that meet the floors of recall" if choice.get("floors") else ""
        strength = (
            "The model as it is" if subject.gamma == 0 and choice.get("candidates") else strength
        )
        chosen = f"{strength} was chosen{by}{among} on {n}{what}"
    if subject.path is None:
        return f"{chosen}."
    if subject.apart:
        no_part = "" if on in ("given", "unlabelled") else " that had no part in the choice"
        total = f"{len(subject.path.labels):,} {subject.samples} samples"
        return f"{chosen}; every number here is measured on {total}{no_part}."
    same = "the numbers here are measured on the same samples; the estimate for new samples allows for that"
    return f"{chosen}, and {same}."


def _verdict_without_labels(subject: Subject) -> PageVerdict:
    """Return the verdict from the choice alone, where labels or logits are missing."""
    choice, said, lines = (
        subject.choice,
        subject.verdict,
        {"How it was chosen": _how_chosen(subject)},
    )
    titles = {
        "balanced_error": ("Balanced error", "every class weighs the same"),
        "error": ("Error", ""),
        "mismatch": (
            "Predicted shares off target",
            "0 %: every class is predicted as often as it should be",
        ),
    }
    numbers = {
        key: Number(key, title, choice[f"{key}_at_zero"], choice[key], note=note)
        for key, (title, note) in titles.items()
        if choice.get(key) is not None and choice.get(f"{key}_at_zero") is not None
    }
    if said is not None and choice.get("n") and "balanced_error" in numbers:
        changed = choice["gamma"] != 0 or not RULES[choice["rule"]].has_path
        status, headline = _decide(subject, said, changed, _rare_gain(choice))
        lines["How certain"] = _own_certainty(subject) or _certainty(
            said, choice["gain_interval"], subject.level
        )
    else:
        status, headline = (
            "unclear",
            "No decision without labels: label a few samples and evaluate on them first",
        )
        unknown = "Without labels it is not known how often the model is right, before or after. "
        lines["What is missing"] = f"{unknown}This page shows how often each class is predicted."
    return PageVerdict(status, headline, lines, tuple(numbers.values()), alarms(subject))


def _rare_gain(choice: ChoiceRecord) -> float | None:
    """Return how much the mean recall of the rarer half rises, from the choice alone; None if it does not say."""
    recalls = [choice.get(name) for name in ("recall_at_zero", "recall")]
    if not choice.get("counts") or not all(recalls):
        return None
    before, after = (
        np.array([np.nan if value is None else value for value in recall or ()])
        for recall in recalls
    )
    known = np.flatnonzero(np.isfinite(after))
    rare = known[np.argsort(np.array(choice["counts"])[known], kind="stable")][
        : max(1, len(known) // 2)
    ]
    return float((after - before)[rare].mean())


def _describe_half(subject: Subject, which: int) -> str:
    """Return how many classes a half has, and of how many training samples."""
    n = subject.counts[subject.halves[which]]
    counts = f"{n.min():,}" if n.min() == n.max() else f"{n.min():,} to {n.max():,}"
    return f"{len(n):,} class{'es' if len(n) > 1 else ''} of {counts} training samples"


def label_verdict(subject: LabelSubject) -> PageVerdict:
    """Return the verdict on a multi-label model, in words."""
    choice, rows, metric, said = subject.choice, subject.rows, subject.metric, subject.verdict
    moved = sum(row.threshold != 0.5 for row in rows)
    recall, precision = (
        _means([getattr(row, name) for row in rows]) for name in ("recall", "precision")
    )
    half = sorted(rows, key=lambda row: row.frequency)[: max(1, len(rows) // 2)]
    rare = _means([row.recall for row in half])
    both = "of labels predicted before and after"
    numbers = [
        Number("recall", "Recall, mean over labels", *recall, better="higher"),
        Number("precision", "Precision, mean over labels", *precision, better="higher", note=both),
        Number("rare", "Recall, rarer half of the labels", *rare, better="higher"),
    ]
    if not subject.apart and metric != "cost" and choice.get("value") is not None:
        title = f"{TITLES[metric][:1].upper()}{TITLES[metric][1:]}, mean over labels"
        better = "lower" if metric in ERRORS else "higher"
        numbers.insert(
            0, Number("metric", title, choice["value_at_zero"], choice["value"], better=better)
        )
    status, headline = _decide_labels(subject, moved, rare[1] - rare[0])
    means = f"recall goes from {recall[0]:.2%} to {recall[1]:.2%}, the mean precision from {precision[0]:.2%} to"
    changes = f"{moved:,} of {len(rows):,} labels get a threshold of their own. The mean {means} {precision[1]:.2%}."
    lines = {"What changes": changes}
    if said is not None:
        lines["How certain"] = _expected(
            subject, said, f"{TITLES.get(metric, metric)}, over all labels,"
        )
    part = (
        "that had no part in the choice" if subject.apart else "that the thresholds were chosen on"
    )
    best = f"the middle of the best ones on {choice.get('n') or subject.n:,} {choice['chosen_on']} samples"
    here = f"the numbers here are of {subject.n:,} samples {part}"
    lines["How it was chosen"] = f"Each label's threshold is {best}; {here}."
    return PageVerdict(status, headline, lines, tuple(numbers), alarms(subject))


def _decide_labels(subject: LabelSubject, moved: int, rare: float) -> tuple[Status, str]:
    choice, metric, said = subject.choice, subject.metric, subject.verdict
    if choice["chosen_on"] == "test":
        return "warn", "Do not decide on this page: the thresholds were chosen on test labels"
    if not moved:
        return "keep", f"{LEAVE}: every label is best as it is"
    if choice.get("floors_met_at_zero") is False:
        return (
            "ship",
            "Ship the new thresholds: as trained, the model misses the least recall that was asked for",
        )
    if said is None:
        return "unclear", f"{LEAVE} for now: how certain the gain is has not been estimated"
    if said == "worse":
        return "keep", f"{LEAVE}: the new thresholds make it worse"
    if not subject.worthwhile:
        return "unclear", f"{LEAVE} for now: {NOT_SEEN}"
    if rare <= 0 and metric == "balanced_error":
        return "unclear", f"{LEAVE} if rare labels matter: their recall does not rise"
    probably = (
        "" if said == "better" else f": they are probably better ({chance_text(said.probability)})"
    )
    matter = f"{TITLES.get(metric, metric)}, over all labels,"
    return "ship", f"Ship the new thresholds, if {matter} is what matters{probably}"


def _means(pairs: Sequence[tuple[float | None, float | None]]) -> tuple[float, float]:
    """Return the means before and after, over the labels of which both are known."""
    known = [pair for pair in pairs if None not in pair] or [(0.0, 0.0)]
    before, after = np.mean(np.array(known, np.float64), axis=0)
    return float(before), float(after)


def alarms(subject: Subject | LabelSubject) -> tuple[Alarm, ...]:
    """Return the warnings of a subject, the one about test labels first."""
    text = (
        "Gamma was chosen on test labels. The numbers on this page flatter the adjusted model: they cannot be "
        "reported as a test result. Choose gamma on held-out samples instead."
    )
    on_test = [Alarm("Not a test result.", text)] if subject.choice["chosen_on"] == "test" else []
    return (
        *on_test,
        *(_alarm(subject, str(line)) for line in subject.choice.get("warnings") or ()),
    )


def _alarm(subject: Subject | LabelSubject, line: str) -> Alarm:
    """Return the warning of a line `Kind: text`, with a command that helps, if there is one."""
    kind, _, text = line.partition(": ")
    if kind not in HELP:
        return Alarm("Warning.", line)
    title, help_, *useless_with = HELP[kind]
    text = text[:1].upper() + text[1:]
    if (
        not help_
        or subject.files.keys() & set(useless_with)
        or isinstance(subject, LabelSubject)
        or subject.fitted
    ):
        return Alarm(title, text)
    model, counts = (
        shlex.quote(name)
        for name in (subject.model or MODEL, subject.files.get("counts", "counts.json"))
    )
    command = help_.format(
        model=model, counts=counts, wider=2 * max(2.0, float(subject.choice["gamma"]))
    )
    return Alarm(
        title, text, command if command.startswith("levelhead") else tune_command(subject, command)
    )
