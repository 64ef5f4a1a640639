"""The verdict: what changed, by how much, how certain that is, at whose cost. In words, for people."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from ..show.style import short
from .subject import Subject

Status = Literal["ship", "unclear", "keep", "warn"]
LITTLE = 0.01  # a gain below one point is called little
RULES = {"rescale": "each class's weight vector is multiplied by (largest count / its count)^gamma",
         "tau": "each class's weight vector is divided by its length^gamma",
         "shift": "gamma times log(largest count / its count) is added to each class's score"}


@dataclass(frozen=True)
class Number:
    """One measure before and after: shares of 1. `better` is which way is good."""

    key: str
    title: str
    before: float
    after: float
    better: Literal["lower", "higher"]
    note: str = ""


@dataclass(frozen=True)
class Verdict:
    """What stands on top of the page."""

    status: Status
    headline: str
    lines: dict[str, str]
    numbers: tuple[Number, ...]
    alarms: tuple[str, ...]


def gain(
    before: np.ndarray, after: np.ndarray, labels: np.ndarray, mass: np.ndarray, level: float = 0.95
) -> tuple[float, float, float]:
    """By how much the balanced error falls at a gamma that these samples had no part in choosing; its interval.

    ``sum_c m_c (up_c - down_c) / n_c``, up and down the samples of class c that turn right and wrong. For the interval
    each class is given one of either more, so that a class of one sample is not taken for certain.

    >>> right = np.array([True, True, False, False])
    >>> [round(x, 3) for x in gain(right, np.array([True] * 4), np.array([0, 0, 1, 1]), np.array([0.5, 0.5]))]
    [0.5, -0.048, 1.048]
    """
    size = len(mass)
    up, down = np.bincount(labels, after & ~before, size), np.bincount(labels, before & ~after, size)
    n = np.bincount(labels, minlength=size)
    mean = float((mass * (up - down) / np.maximum(n, 1)).sum())
    variance = ((up + down + 2) / (n + 2) - ((up - down) / (n + 2)) ** 2) / (n + 2)
    spread = NormalDist().inv_cdf((1 + level) / 2) * float(np.sqrt((mass**2 * variance).sum()))
    return mean, mean - spread, mean + spread


def verdict(subject: Subject) -> Verdict:
    """The verdict on a subject, whatever is known of it."""
    if subject.path is None:
        return _blind(subject)
    path, gamma, labels = subject.path, subject.gamma, subject.path.labels
    before, after = path.right(0.0), path.right(gamma)
    low, high = _gain_interval(subject, before, after)
    was, now = path.at(0.0), path.at(gamma)
    rare, common = ([float(np.nanmean(x.class_accuracy[half])) for x in (was, now)] for half in subject.halves)
    mix = [1 - float(np.nansum(subject.counts * x.class_accuracy) / subject.counts[subject.present].sum())
           for x in (was, now)]
    numbers = (
        Number("balanced", "Balanced error", was.balanced_error, now.balanced_error, "lower",
               "every class weighs the same" if subject.target is None else "classes weigh as the target says"),
        Number("error", "Error", was.error, now.error, "lower", f"on these {len(labels):,} samples"),
        Number("rare", f"{_half(subject, 'Rarer')} found", rare[0], rare[1], "higher", _of(subject, subject.halves[0])),
        Number("common", f"{_half(subject, 'More frequent')} found", common[0], common[1], "higher",
               _of(subject, subject.halves[1])),
    )
    lower = was.balanced_error - now.balanced_error
    status, headline = _decide(subject, low, high, bool((before != after).any()), lower)
    lines = {"What changes": _what(subject, numbers), "How certain": _certainty(low, high, subject.level),
             "Who pays": _cost(subject, was.class_accuracy, now.class_accuracy),
             "If imbalance stays": _mix(mix, subject), "Chosen how": _origin(subject)}
    return Verdict(status, headline, lines, numbers, _alarms(subject))


def percent(share: float) -> str:
    """As the page's own script writes it: ties go up.

    >>> percent(0.00125)
    '0.13\\xa0%'
    """
    return f"{100 * share + 1e-9:.2f}\N{NO-BREAK SPACE}%"


def _gain_interval(subject: Subject, before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """Corrected for the choice where it was made on these samples; else of the gain at a gamma that is simply given."""
    assert subject.path is not None
    if not subject.apart and subject.gain_interval is not None:
        return subject.gain_interval
    return gain(before, after, subject.path.labels, subject.mass, subject.level)[1:]


def _decide(subject: Subject, low: float, high: float, changed: bool, lower: float) -> tuple[Status, str]:
    """From the interval of the gain, and by how much the balanced error is lower on the samples at hand."""
    if subject.choice["chosen_on"] == "test":
        return "warn", "Do not decide on this page: gamma was chosen on test labels"
    if not changed:
        return "keep", "Keep the model as it is: the adjustment changes no prediction"
    if low > 0 and lower < LITTLE:
        return "ship", f"The adjusted model is better, but by little: {100 * lower:.2f} points of balanced error"
    if low > 0:
        return "ship", "Ship the adjusted model, if rare classes matter as much as frequent ones"
    if high < 0:
        return "keep", "Keep the model as it is: the adjustment makes it worse"
    return "unclear", "Keep the model as it is for now: no gain is certain"


def _what(subject: Subject, numbers: tuple[Number, ...]) -> str:
    balanced, plain, rare, common = numbers
    of = "" if subject.classes == 2 else " of the classes"
    return (f"The {_half(subject, 'rarer')}{of} is found {_arrow(rare)} of the time, the "
            f"{_half(subject, 'more frequent')} {_arrow(common)}. Overall error {_arrow(plain)}; balanced error "
            f"{_arrow(balanced)}.")


def _certainty(low: float, high: float, level: float) -> str:
    change = (f"between {100 * low:.2f} and {100 * high:.2f} points lower" if low > 0 else
              f"between {-100 * high:.2f} and {-100 * low:.2f} points higher" if high < 0 else
              f"anywhere from {100 * high:.2f} points lower to {-100 * low:.2f} points higher")
    return f"On new samples like these the balanced error will be {change} ({100 * level:g} % confidence)."


def _cost(subject: Subject, was: np.ndarray, now: np.ndarray) -> str:
    loss = np.nan_to_num(was - now)
    losers, worst = int((loss > 0).sum()), int(np.argmax(loss))
    if losers == 0:
        return "Nobody: no class is found less often than before."
    return (f"{losers:,} of {len(subject.present):,} classes are found less often than before, most of all "
            f"{_quoted(subject.name(worst))}, {percent(was[worst])} → {percent(now[worst])}.")


def _mix(mix: list[float], subject: Subject) -> str:
    if np.all(subject.counts == subject.counts[0]):
        return "The training counts are all equal, so there is no imbalance to level."
    text = f"Where classes are as imbalanced as in training, expect an error of {percent(mix[0])} → {percent(mix[1])}"
    if mix[1] > mix[0]:
        return (f"{text}. If that is where the model will work, and no class matters more than another, keep it as it "
                "is.")
    return f"{text}: no worse there, either."


def _origin(subject: Subject) -> str:
    choice, gamma = subject.choice, subject.gamma
    on, n = choice["chosen_on"], f"{choice['n']:,} " if choice.get("n") else ""
    between = choice.get("interval")
    likely = f" ({100 * subject.level:g} % interval {between[0]:.3f} to {between[1]:.3f})" if between else ""
    if on == "given":
        chosen = f"gamma = {gamma:g} was given by hand"
    elif on == "unlabelled":
        chosen = (f"gamma = {gamma:.3f}{likely} was chosen on {n}samples without looking at a label, so that each "
                  "class is predicted as often as it is assumed to occur" + ("" if subject.target is not None else
                  " (all equally often)"))
    else:
        what = {"test": "TEST samples, with their labels", "held-out": "held-out samples"}.get(on, f"{on} samples")
        chosen = f"gamma = {gamma:.3f}{likely} was chosen on {n}{what}"
    if subject.path is None:
        return chosen + "."
    total = len(subject.path.labels)
    if subject.apart:
        return f"{chosen}; every number here is measured on {total:,} {subject.samples} samples" + (
            "." if on in ("given", "unlabelled") else " that had no part in the choice.")
    return f"{chosen}, and the numbers here are measured on the same ones; the promise for new samples allows for that."


def _alarms(subject: Subject) -> tuple[str, ...]:
    found = [str(line) for line in subject.choice.get("warnings") or ()]
    if subject.choice["chosen_on"] == "test":
        found.insert(0, "Gamma was chosen on test labels. The numbers on this page flatter the adjusted model: they "
                        "cannot be reported as a test result. Choose gamma on held-out samples, and come back.")
    return tuple(found)


def _blind(subject: Subject) -> Verdict:
    """Without labels, or without logits: only what the choice itself says."""
    choice, numbers = subject.choice, []
    pairs = (("Balanced error", "balanced_error", "every class weighs the same"), ("Error", "error", ""),
             ("Predicted shares off target", "mismatch", "0 % is every class predicted as often as it should be"))
    for title, key, note in pairs:
        if choice.get(key) is not None and choice.get(f"{key}_at_zero") is not None:
            numbers.append(Number(key, title, choice[f"{key}_at_zero"], choice[key], "lower", note))
    known, lines = subject.gain_interval, {"Chosen how": _origin(subject)}
    balanced = next((number for number in numbers if number.key == "balanced_error"), None)
    if known is not None and choice.get("n") and balanced:
        lower = balanced.before - balanced.after
        status, headline = _decide(subject, known[0], known[1], choice["gamma"] != 0, lower)
        lines["How certain"] = _certainty(known[0], known[1], subject.level)
    else:
        status, headline = "unclear", "Not to be decided without labels: judge a few labelled samples first"
        lines["What is missing"] = ("Without labels nobody can say how often the model is right, before or after. What "
                                    "can be seen is how often each class is predicted.")
    return Verdict(status, headline, lines, tuple(numbers), _alarms(subject))


def _half(subject: Subject, which: str) -> str:
    return f"{which} {'class' if subject.classes == 2 else 'half'}"


def _of(subject: Subject, members: np.ndarray) -> str:
    if len(members) == 0:
        return ""
    low, high = subject.counts[members].min(), subject.counts[members].max()
    counts = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    plural = f"{len(members):,} classes of" if len(members) > 1 else "1 class of"
    return f"{plural} {counts} training samples"


def _quoted(name: str, most: int = 60) -> str:
    """A class's name within a sentence: cut where it is long, and kept from turning the rest around (bidi isolates)."""
    return f"“\N{FIRST STRONG ISOLATE}{short(name, most)}\N{POP DIRECTIONAL ISOLATE}”"


def _arrow(number: Number) -> str:
    return f"{percent(number.before)} → {percent(number.after)}"
