"""The one error class, and what gives its messages the names that a user knows.

A `LevelheadError` keeps apart what is wrong, the parameter at fault and what would help. In Python
it prints all three; the command line puts its options in place of parameters. Code deep inside
raises one without a name, and whoever knows more adds it: `in_file` the file, `named` the
parameter. `reported_as` makes one of another library's error.

So no text of a message is ever taken apart again, and a function that raises need not know whether
it was called from Python or from a terminal.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple


class Advice(NamedTuple):
    """Another parameter that would help.

    In Python it reads "pass missing='neutral' to leave it as it is", in a terminal "pass
    --missing neutral to leave it as it is"; not at all where the command has no such option.
    """

    parameter: str
    value: str | None  # None where only the user knows it
    effect: str  # what that does, beginning with "to" or "if": "to leave it as it is"


class LevelheadError(ValueError):
    """An input that cannot be used.

    It is a ValueError, so that those who know only that catch it, too.

    Args:
        message: one line: what was expected, what came and, where it helps, what to do.
        parameter: the parameter at fault, printed before the message; None if the message says it
            all.
        advice: another parameter of the same function that helps.

    >>> advice = Advice("missing", "neutral", "to leave it as it is")
    >>> str(LevelheadError("class 3 has no samples", advice=advice))
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
        parameter, value, effect = self.advice
        if value is None:
            return f"{self.named}; pass {parameter} {effect}"
        return f"{self.named}; pass {parameter}={value!r} {effect}"

    @property
    def named(self) -> str:
        """The parameter and the message, without the advice."""
        if self.parameter is None:
            return self.message
        return f"{self.parameter}: {self.message}"

    def __reduce__(self) -> tuple[object, ...]:
        """Let it come back whole from another process: pickle would call it with the message alone."""
        return partial(type(self), parameter=self.parameter, advice=self.advice), (self.message,)


def visible(text: str) -> str:
    """Return a text of a file on one line, with what a terminal would obey written out.

    A name in a file may hold escape sequences, which clear the screen or forge a line of output.

    >>> visible("cat\\n\\x1b[2J")
    'cat\\\\n\\\\x1b[2J'
    """
    if text.isprintable():
        return text
    letters = []
    for letter in text:
        if not letter.isprintable():
            letter = ascii(letter)[1:-1]  # without the quotes
        letters.append(letter)
    return "".join(letters)


def message_of(error: BaseException) -> str:
    """Return what an error says: that of the system without its number, the name of the file first.

    >>> message_of(FileNotFoundError(2, "No such file or directory", "counts.csv"))
    'counts.csv: no such file or directory'
    """
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror.lower()
        if error.filename is None:
            return reason
        return f"{error.filename}: {reason}"
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def in_file(path: object) -> Iterator[None]:
    """Put the name of a file before the message of a LevelheadError raised in the block.

    Unless it is there already: blocks may lie in one another.

    >>> with in_file("counts.csv"):
    ...     raise LevelheadError("expected rows of class,n")
    Traceback (most recent call last):
    levelhead.support.errors.LevelheadError: counts.csv: expected rows of class,n
    """
    try:
        yield
    except LevelheadError as error:
        if error.message.startswith(f"{path}: "):
            raise
        raise LevelheadError(f"{path}: {error.named}", advice=error.advice) from None


@contextmanager
def named(parameter: str) -> Iterator[None]:
    """Say that a LevelheadError raised in the block is about a parameter.

    Whichever it named itself is replaced.

    For checks that several functions share, and that know nothing of their callers' parameters.
    """
    try:
        yield
    except LevelheadError as error:
        raise LevelheadError(error.message, parameter=parameter, advice=error.advice) from None


@contextmanager
def reported_as(message: str, *kinds: type[BaseException]) -> Iterator[None]:
    """Turn errors of these kinds, except our own, into a LevelheadError.

    The traceback of the other library is dropped: whoever gave a damaged file has no use for it.

    Args:
        message: of that error; {} in it stands for what the first one says.
        kinds: classes of errors.

    >>> with reported_as("not a number ({})", ValueError):
    ...     float("cat")
    Traceback (most recent call last):
    levelhead.support.errors.LevelheadError: not a number (could not convert string to float: 'cat')
    """
    try:
        yield
    except LevelheadError:
        raise
    except kinds as error:
        reason = visible(str(error)) or type(error).__name__
        raise LevelheadError(message.replace("{}", reason)) from None


def check_choice(parameter: str, value: object, choices: Iterable[str]) -> None:
    """Raise LevelheadError unless the value is one of the choices, which the message lists.

    >>> check_choice("bias", "drop", ("scale", "keep"))
    Traceback (most recent call last):
    levelhead.support.errors.LevelheadError: bias: expected 'scale' or 'keep', got 'drop'
    """
    names = tuple(choices)
    if value not in names:
        *others, last = map(repr, names)
        expected = last
        if others:
            expected = f"{', '.join(others)} or {last}"
        raise LevelheadError(f"expected {expected}, got {value!r}", parameter=parameter)
