"""Warnings for the reader of a page: what is wrong in words, what it means, and a command that helps."""

import shlex
from dataclasses import dataclass

from .rule_view import ChoiceRecord
from .subject import Subject
from .use_it import MODEL, tune_command

# for each kind of warning: its title, and the options of the command that helps, or a whole command
HELP: dict[str, tuple[str, str]] = {
    "LeakageWarning": ("These samples look like training data.", ""),
    "NegativeLogitsWarning": ("Scaling moves some classes the wrong way.", "--rule shift"),
    "BinaryHeadWarning": ("Scaling cannot change this model's predictions.", "--rule shift"),
    "NormWarning": ("The weight norms do not follow the counts.", "--rule shift"),
    "MissingClassWarning": ("A class has no sample here.", ""),
    "CountsWarning": (
        "The counts may not be those of the training set.",
        "levelhead inspect {model} --counts {counts}",
    ),
    "NeverPredictedWarning": ("Some classes are hardly ever predicted.", "--labels labels.npy"),
    "PriorWarning": ("The shares of the classes in use are uncertain.", "--target 0.5,0.3,0.2"),
    "RangeWarning": ("The strength lies at the end of the range that was searched.", "--max {wider:g}"),
    "ScaleWarning": ("The strength may be on the wrong scale.", "--rule auto"),
    "PrecisionWarning": ("Half precision could change predictions.", "levelhead inspect {model}"),
}


@dataclass(frozen=True)
class Alarm:
    """A warning: what is wrong in a few words, the whole line, and a command to copy, or "".

    >>> Alarm("A class has no sample here.", "no sample here of class 2").command
    ''
    """

    title: str
    text: str
    command: str = ""


def alarms(subject: Subject) -> tuple[Alarm, ...]:
    """Return the warnings of a subject, the one about test labels first."""
    warned = subject.choice.get("warnings") or ()
    return (*_on_test(subject.choice), *(_alarm(subject, str(line)) for line in warned))


def bare_alarms(choice: ChoiceRecord) -> tuple[Alarm, ...]:
    """Return the warnings of a choice, without commands."""
    lines = [str(line).partition(": ") for line in choice.get("warnings") or ()]
    return (*_on_test(choice), *(Alarm(HELP.get(kind, ("Warning.", ""))[0], text) for kind, _, text in lines))


def _on_test(choice: ChoiceRecord) -> tuple[Alarm, ...]:
    text = (
        "Gamma was chosen on test labels. The numbers on this page flatter the adjusted model: they cannot be "
        "reported as a test result. Choose gamma on held-out samples instead."
    )
    return (Alarm("Not a test result.", text),) if choice["chosen_on"] == "test" else ()


def _alarm(subject: Subject, line: str) -> Alarm:
    kind, _, text = line.partition(": ")
    title, help_ = HELP.get(kind, ("", ""))
    if not title:
        return Alarm("Warning.", line)
    text = text[:1].upper() + text[1:]
    if not help_ or subject.fitted:
        return Alarm(title, text)
    if help_.startswith("--labels") and "labels" in subject.files:
        return Alarm(title, text)
    if help_.startswith("--max") and subject.files.keys() & {"run", "snapshot"}:
        return Alarm(title, text)
    model, counts = (shlex.quote(name) for name in (subject.model or MODEL, subject.files.get("counts", "counts.json")))
    wider = 2 * max(2.0, float(subject.choice["gamma"]))
    known = help_.format(model=model, counts=counts, wider=wider)
    return Alarm(title, text, known if known.startswith("levelhead") else tune_command(subject, known))
