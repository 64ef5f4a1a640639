"""The rules that were tried, side by side, for the page."""

from dataclasses import dataclass

from ..path.metrics import TITLES, gain_text, value_form
from ..rules.rule import RULES, Unchanged
from .rule_view import rule_title
from .subject import Subject

AS_TRAINED = Unchanged.name


@dataclass(frozen=True)
class RuleRow:
    """One rule: its strength, the metric on samples that it was not fitted on, the gain, and whether it was chosen."""

    title: str
    strength: str
    value: str
    gain: str
    chosen: bool


@dataclass(frozen=True)
class RuleTable:
    """The rules that were tried: the title of their metric, a row each, and why one was chosen."""

    metric: str
    rows: tuple[RuleRow, ...]
    why: str


def rule_table(subject: Subject) -> RuleTable | None:
    """Return the rules that were tried; None if only one was."""
    choice, candidates = subject.choice, subject.choice.get("candidates") or ()
    if len(candidates) < 3:
        return None
    metric = choice.get("metric") or "balanced_error"
    why = str(choice.get("why") or "")
    still = why.startswith("the model as it is")
    rows = []
    for one in candidates:
        rule, second, between = one["rule"], one.get("second"), one.get("interval")
        then = "" if second is None else f", then {round(second, 3) + 0.0:.3f}"
        strength = (
            "" if rule == AS_TRAINED else f"{one['gamma']:.3f}{then}" if RULES[rule].strengths else "a number per class"
        )
        gain = "" if rule == AS_TRAINED else gain_text(metric, one["gain"], None if between is None else tuple(between))
        rows.append(
            RuleRow(
                "As trained" if rule == AS_TRAINED else rule_title(rule),
                strength,
                format(one["value"], value_form(metric)),
                gain,
                rule == (AS_TRAINED if still else choice["rule"]),
            )
        )
    title = TITLES.get(metric, metric)
    why = f"{why[:1].upper()}{why[1:]}." if why else ""
    return RuleTable(f"{title[:1].upper()}{title[1:]}", tuple(rows), why)
