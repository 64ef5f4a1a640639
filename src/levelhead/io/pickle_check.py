"""Whether a pickle builds no more than a checkpoint of tensors does.

That is told from its operations, without running it.

torch's `weights_only` runs no code of a file, but builds what it says: tuples in tuples until
hashing them overflows the stack, bytes encoded again and again until they fill the memory.
`_follow` walks through the operations as an unpickler would, with sizes in place of values.

A pickle is a program for a machine with a stack and a memo: operations push constants, take some of
them off to make a tuple or call a function, and keep and fetch values by number (`pickletools`
lists them all). Those known here are the ones that torch's restricted unpickler has; at any other
one, torch stops with an error, and so the walk may stop as well.
"""

from collections.abc import Iterable
from encodings import normalize_encoding
from pickletools import genops
from typing import Any, NamedTuple
from warnings import catch_warnings

from ..support.errors import LevelheadError

MOST_LEVELS = 60  # tuples and calls inside one another; a tensor in a checkpoint has about 8
MOST_PARTS = 1_000_000  # parts of one tuple, counted again wherever one is shared
# Codecs that turn bytes into bytes, most of them longer: by calling them again and again, a few
# bytes become gigabytes.
TRANSFORMS = {
    "hex", "hex_codec", "base64", "base_64", "base64_codec", "zip", "zlib", "zlib_codec", "bz2", "bz2_codec",
    "uu", "uu_codec", "quopri", "quoted_printable", "quotedprintable", "quopri_codec",
}  # fmt: skip
# What operations put on the stack: the text of a constant.
CONSTANTS = (
    "NONE", "NEWTRUE", "NEWFALSE", "BINFLOAT", "EMPTY_TUPLE", "EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET",
)  # fmt: skip
NUMBERS = ("BININT", "BININT1", "BININT2", "LONG1")
PUTS = dict.fromkeys(CONSTANTS, "") | dict.fromkeys(NUMBERS, "number")
# How many values operations take from it, to be parts of one, or to be dropped.
JOINS = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "BINPERSID": 1}
DROPS = {"BUILD": 1, "APPEND": 1, "SETITEM": 2}


def check_pickle(data: bytes) -> None:
    """Check that a pickle builds no more than a checkpoint does.

    What torch refuses by itself is left to torch.

    Args:
        data: the content of data.pkl. Its length bounds the time: each operation is looked at once.

    Raises:
        LevelheadError: values lie too deep in one another, an array is asked for by its size alone,
            or bytes are encoded as bytes.

    >>> import pickle
    >>> check_pickle(pickle.dumps({"epoch": 7}, protocol=2))
    >>> nested = ()
    >>> for _ in range(100):
    ...     nested = (nested,)
    >>> check_pickle(pickle.dumps(nested, protocol=2))
    Traceback (most recent call last):
    levelhead.support.errors.LevelheadError: its values lie too deep in one another
    """
    try:
        # Of escapes in damaged text.
        with catch_warnings(action="ignore", category=DeprecationWarning):
            _follow((opcode.name, argument) for opcode, argument, _ in genops(data))
    except LevelheadError:
        raise
    # Nothing on the stack, no such operation, cut short.
    except (LookupError, ValueError, AttributeError):
        return


class _Value(NamedTuple):
    """What is known of a value on the stack."""

    size: int = 1  # itself and its parts
    depth: int = 0  # how deep they lie
    text: str = ""  # of a constant: the name of a function, or that it is a number


def _follow(operations: Iterable[tuple[str, Any]]) -> None:
    """Run the program that a pickle is, until torch would stop.

    The sizes of values stand in their place: a tuple is as large as its parts, and one that is
    fetched from the memo counts again wherever it is put, as hashing or copying it would go through
    it again. Lists and dicts keep the size that they had when they were empty: they are filled in
    place, and nothing hashes them.

    Args:
        operations: names and arguments, as `pickletools.genops` gives them.
    """
    stack: list[_Value] = []
    below: list[list[_Value]] = []  # the stacks under each mark
    memo: dict[int, _Value] = {}
    encodes = False  # whether it has named the function that encodes
    transforms = False  # and a codec that turns bytes into bytes
    for name, argument in operations:
        # A mark keeps the stack aside and begins a new one; TUPLE and its like take all that is
        # above it.
        if name == "MARK":
            below.append(stack)
            stack = []
        elif name in ("TUPLE", "APPENDS", "SETITEMS"):
            parts = stack
            stack = below.pop()
            if name == "TUPLE":
                stack.append(_together(parts))
        elif name in JOINS:
            stack[-JOINS[name] :] = [_together(stack[-JOINS[name] :])]
        # A call: the function and its arguments are replaced by what comes back, whose size is
        # taken to be theirs.
        elif name in ("REDUCE", "NEWOBJ"):
            arguments = stack.pop()
            function = stack.pop()
            if function.text.endswith(("bytearray", "Storage")) and arguments.text == "number":
                raise LevelheadError("it asks for an array without giving its bytes")
            stack.append(_together([arguments]))
        elif name in DROPS:
            del stack[-DROPS[name] :]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        # The name of a function or class. torch allows `_codecs.encode`, by which protocol 2 writes
        # bytes as text in latin-1.
        elif name == "GLOBAL":
            encodes |= argument == "_codecs encode"
            stack.append(_Value(text=argument))
        elif name in ("BINUNICODE", "SHORT_BINSTRING"):
            transforms |= len(argument) < 100 and normalize_encoding(argument).lower() in TRANSFORMS
            stack.append(_Value())
        elif name in PUTS:
            stack.append(_Value(text=PUTS[name]))
        elif name != "PROTO":  # the end, or what torch refuses
            return
        # Whether the one is called with the other is not followed: a file that names both is
        # refused.
        if encodes and transforms:
            raise LevelheadError("it encodes bytes as bytes, by which a few become gigabytes")


def _together(parts: list[_Value]) -> _Value:
    """Return a value with these parts; (5,) is still known to hold a number.

    That is what the arguments of `bytearray(5)` look like: a few bytes of a pickle could so ask for
    gigabytes of zeros.
    """
    size = 1 + sum(part.size for part in parts)
    depth = 1 + max((part.depth for part in parts), default=0)
    if depth > MOST_LEVELS or size > MOST_PARTS:
        raise LevelheadError("its values lie too deep in one another")
    text = ""
    if len(parts) == 1 and parts[0].text == "number":
        text = "number"
    return _Value(size, depth, text)
