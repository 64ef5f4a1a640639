"""The one error class: it speaks of parameters, for which the command line puts its own words; and shared checks."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple


class Advice(NamedTuple):
    """A parameter that helps, its value (None where only the user knows it), and what that does."""

    parameter: str
    value: str | None
    effect: str


class LevelheadError(ValueError):
    """An input that cannot be used.

    Args:
        message: one line: what was expected, what came and, where it helps, what to do.
        parameter: the parameter at fault, printed before the message; None if the message says it all.
        advice: another parameter of the same function that helps.

    >>> str(LevelheadError("class 3 has no samples", advice=Advice("missing", "neutral", "to leave it as it is")))
    "class 3 has no samples; pass missing='neutral' to leave it as it is"
    """

    def __init__(self, message: str, *, parameter: str | None = None, advice: Advice | None = None):
        super().__init__(message)
        self.message = message
        self.parameter = parameter
        self.advice = advice

    def __str__(self) -> str:
        if self.advice is None:
            return self.named
        name, value, effect = self.advice
        return f"{self.named}; pass {name if value is None else f'{name}={value!r}'} {effect}"

    @property
    def named(self) -> str:
        """The parameter and the message, without the advice."""
        if self.parameter is None:
            return self.message
        return f"{self.parameter}: {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), parameter=self.parameter, advice=self.advice), (self.message,)


def visible(text: str) -> str:
    """Return a text of a file on one line, with what a terminal would obey written out."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


@contextmanager
def in_file(path: object) -> Iterator[None]:
    """Put the name of a file before the message of a LevelheadError raised inside the block, unless it is there."""
    try:
        yield
    except LevelheadError as error:
        if error.message.startswith(f"{path}: "):
            raise
        raise LevelheadError(f"{path}: {error.named}", advice=error.advice) from None


@contextmanager
def named(parameter: str) -> Iterator[None]:
    """Say that a LevelheadError raised inside the block is about a parameter, whatever it named itself."""
    try:
        yield
    except LevelheadError as error:
        raise LevelheadError(error.message, parameter=parameter, advice=error.advice) from None


@contextmanager
def reported_as(message: str, *kinds: type[BaseException]) -> Iterator[None]:
    """Turn errors of these kinds, but our own, into a LevelheadError; {} in its message is what the error says."""
    try:
        yield
    except LevelheadError:
        raise
    except kinds as error:
        raise LevelheadError(
            message.replace("{}", visible(str(error)) or type(error).__name__)
        ) from None


def check_choice(parameter: str, value: Any, choices: Iterable[str]) -> None:
    """Raise LevelheadError unless the value is one of the choices."""
    known = tuple(choices)
    if value not in known:
        *others, last = map(repr, known)
        expected = last
        if others:
            expected = f"{', '.join(others)} or {last}"
        raise LevelheadError(f"expected {expected}, got {value!r}", parameter=parameter)
