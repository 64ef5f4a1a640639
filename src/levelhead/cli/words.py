"""Metrics, rules and formats by name, as the tables of the library have them.

The tables are imported only when a name is looked up, completed or shown: `levelhead --help` needs
none of them. So the help of an option holds a mark such as {rules} (`RULES_HERE`), and a command of
class `PlainCommand` puts the words in its place when its own help is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from typer.core import TyperCommand

from ..support.errors import Advice, LevelheadError

if TYPE_CHECKING:
    from ..core.rules import Rule

# A context, a formatter or a parameter of click, whose classes typer does not export.
Click: TypeAlias = Any


def metric_names() -> list[str]:
    """Return the names of all metrics."""
    from ..core.metrics import METRICS

    return list(METRICS)


def rule_names() -> list[str]:
    """Return the names of all rules."""
    from ..core.rules import RULES

    return list(RULES)


def names_of_rules_with_strength() -> list[str]:
    """Return the names of the rules that take a strength of one's own."""
    from ..core.rules import RULES

    return [name for name, rule in RULES.items() if "strength" in _options_of(rule)]


# For the Tab key of a shell; typer finds them by the option.
def complete_metric(incomplete: str) -> list[str]:
    return [name for name in metric_names() if name.startswith(incomplete)]


def complete_rule(incomplete: str) -> list[str]:
    return [name for name in rule_names() if name.startswith(incomplete)]


def complete_rule_with_strength(incomplete: str) -> list[str]:
    return [name for name in names_of_rules_with_strength() if name.startswith(incomplete)]


def rule_with(name: str | None, **options: object) -> Rule:
    """Return the rule of a name, the default one if None, with those options that are not None.

    An option that the rule does not have is refused: what a rule takes are its fields, so that a new rule
    needs no change here.

    Args:
        name: as --rule has it.
        options: such as `strength` and `norms`, by the names of the fields.
    """
    from ..core.rules import DEFAULT, find_rule

    # tau goes by norms, which logits do not tell: `tune` must be given them, `adjust` reads the model's.
    rule = find_rule(DEFAULT if name is None else name)
    if "norms" in options and options["norms"] is None and getattr(rule, "needs_norms", False):
        reason = f"{rule.name!r} needs the weight norms of the head"
        raise LevelheadError(reason, parameter="rule", advice=Advice("norms", None, "with them"))
    settings = {option: value for option, value in options.items() if value is not None}
    for option in settings:
        if option not in _options_of(rule):
            reason = f"the rule {rule.name} does not take it; leave it out"
            raise LevelheadError(reason, parameter=option)
    if not settings:
        return rule
    return replace(rule, **settings)  # type: ignore[type-var]


def _options_of(rule: Rule) -> set[str]:
    """Return the names of what a rule can be given: its fields."""
    if is_dataclass(rule):
        return {field.name for field in fields(rule)}
    return set()


# Marks for a part of a help text that only the tables know.
METRICS_HERE = "{metrics}"
RULES_HERE = "{rules}"
RULES_WITH_STRENGTH_HERE = "{rules with a strength}"
FORMATS_HERE = "{formats}"


def _metrics_text() -> str:
    """Return the names of all metrics, with which is the default of what."""
    from ..core.goal import Goal
    from ..labels.check import DEFAULT_METRIC

    defaults = {
        Goal().metric.name: " (the default)",
        DEFAULT_METRIC: " (the default for several labels per sample)",
    }
    return ", ".join(f"{name}{defaults.get(name, '')}" for name in metric_names())


def _rules_text() -> str:
    """Return every rule with its sentence, the default marked."""
    from ..core.rules import DEFAULT, RULES

    words = []
    for name, rule in RULES.items():
        default = ""
        if name == DEFAULT:
            default = " (the default)"
        words.append(f"{name}{default}: {rule.sentence}")
    return "; ".join(words)


def _rules_with_strength_text() -> str:
    from ..core.rules import RULES

    names = names_of_rules_with_strength()
    return "; ".join(f"{name}: {RULES[name].sentence}" for name in names)


def _formats_text() -> str:
    from ..files.formats import formats_text

    return formats_text()


_TEXTS: dict[str, Callable[[], str]] = {
    METRICS_HERE: _metrics_text,
    RULES_HERE: _rules_text,
    RULES_WITH_STRENGTH_HERE: _rules_with_strength_text,
    FORMATS_HERE: _formats_text,
}


# What typer calls a value, by its type in Python (0.29) or in click (0.19), and what the help says.
_VALUES = {
    "<path>": "FILE",
    "<str>": "TEXT",
    "<int>": "N",
    "<int range>": "N",
    "<float>": "NUMBER",
    "PATH": "FILE",
    "INTEGER": "N",
    "INTEGER RANGE": "N",
    "FLOAT": "NUMBER",
}


class PlainCommand(TyperCommand):
    """A command whose help is in plain words: what all commands of ours are.

    Arguments are named as the usage line names them, MODEL, and values by what they are: FILE, N, or a word that the
    option gives itself as its `metavar`. Metrics, rules and formats are looked up when the help is shown, and not
    before.
    """

    def collect_usage_pieces(self, ctx: Click) -> list[str]:
        """Return what the usage line has after the command: [OPTIONS] MODEL."""
        pieces = ["[OPTIONS]"]
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                word = _argument_word(parameter)
                if not parameter.required:
                    word = f"[{word}]"
                pieces.append(word)
        return pieces

    def records(self, ctx: Click, kind: Literal["argument", "option"]) -> list[tuple[str, str]]:
        """Return each parameter of a kind as the help lists it: how it is written, and what it means.

        The site's page of all commands is made of the same records (docs/reference.py).

        Args:
            ctx: click's context of this command.
            kind: which parameters.
        """
        self._fill_in()
        records = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None or parameter.param_type_name != kind:
                continue
            if kind == "argument":
                records.append((_argument_word(parameter), record[1]))
            else:
                records.append((_option_title(record[0]), record[1]))
        return records

    def format_options(self, ctx: Click, formatter: Click) -> None:
        """Write the sections of arguments and options; there is always -h."""
        arguments = self.records(ctx, "argument")
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        with formatter.section("Options"):
            formatter.write_dl(self.records(ctx, "option"))

    def shell_complete(self, ctx: Click, incomplete: str) -> Click:
        """Return what the Tab key offers; some shells show the help of options beside them."""
        self._fill_in()
        return super().shell_complete(ctx, incomplete)

    def _fill_in(self) -> None:
        """Put words in place of the marks, once: after that there are none.

        The tables of rules, metrics and formats import numpy, which takes longer than the rest of the help.
        """
        for option in self.params:
            text = getattr(option, "help", None) or ""
            for here, words in _TEXTS.items():
                if here in text:
                    option.help = text.replace(here, words())  # pyright: ignore


def _argument_word(parameter: Click) -> str:
    """Return how help and usage name an argument: MODEL, or INPUT... if there may be several."""
    word = (parameter.metavar or parameter.name).upper()
    if parameter.nargs != 1:
        return f"{word}..."
    return word


def _option_title(title: str) -> str:
    """Return an option with its value in plain words, from what typer writes.

    >>> _option_title("-o, --out <path>"), _option_title("--bias <scale|keep>"), _option_title("--json")
    ('-o, --out FILE', '--bias [scale|keep]', '--json')
    """
    names, separator, value = title.partition(" ")
    while value.startswith("-"):  # a second name: -o, --out <path>
        name, separator, value = value.partition(" ")
        names = f"{names} {name}"
    if value.startswith("<") and "|" in value:
        return f"{names} [{value[1:-1]}]"
    return f"{names}{separator}{_VALUES.get(value, value)}"
