"""What a pickle would build, followed without building it: one that would take all memory or all time is refused."""

from encodings import normalize_encoding
from pickletools import genops
from typing import Any, NamedTuple
from warnings import catch_warnings

from ..core.errors import LevelheadError

MOST_LEVELS = 60  # tuples and calls inside one another; a tensor in a checkpoint has about 8
MOST_PARTS = 1_000_000  # parts of one tuple, counted again wherever one is shared
# Codecs that turn bytes into bytes, most of them longer: by calling them again and again, a few bytes become gigabytes.
TRANSFORMS = {"hex", "hex_codec", "base64", "base_64", "base64_codec", "zip", "zlib", "zlib_codec", "bz2", "bz2_codec"}
TRANSFORMS |= {"uu", "uu_codec", "quopri", "quoted_printable", "quotedprintable", "quopri_codec"}
CONSTANTS = ("NONE", "NEWTRUE", "NEWFALSE", "BINFLOAT", "EMPTY_TUPLE", "EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET")
# What is put on the stack: the text of a constant. How many values are taken from it, to be parts of one, or dropped.
PUTS = dict.fromkeys(CONSTANTS, "") | dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1"), "number")
JOINS = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "BINPERSID": 1}
DROPS = {"BUILD": 1, "APPEND": 1, "SETITEM": 2}


def check_pickle(data: bytes) -> None:
    """Check that a pickle builds no more than a checkpoint does. What torch refuses by itself is left to torch."""
    # Its `weights_only` runs no code, but builds what a file says: tuples in tuples, until hashing overflows the stack.
    follower = _Follower()
    try:
        with catch_warnings(action="ignore", category=DeprecationWarning):  # of escapes in damaged text
            for opcode, argument, _ in genops(data):
                if not follower.follow(opcode.name, argument):
                    return
    except LevelheadError:
        raise
    except (LookupError, ValueError, AttributeError):  # nothing on the stack, no such operation, cut short
        return


class _Value(NamedTuple):
    """What is known of a value: its parts, how deep they lie, and a constant's text."""

    size: int = 1
    depth: int = 0
    text: str = ""


class _Follower:
    """The machine that a pickle is a program of, with the values' sizes in place of the values."""

    def __init__(self) -> None:
        self.stack: list[_Value] = []
        self.below: list[list[_Value]] = []  # the stacks under each mark
        self.memo: dict[int, _Value] = {}
        self.encodes = self.transforms = False

    def follow(self, name: str, argument: Any) -> bool:
        """Follow one operation; return False where torch stops."""
        stack = self.stack
        if name == "MARK":
            self.below.append(stack)
            self.stack = []
        elif name in ("TUPLE", "APPENDS", "SETITEMS"):
            self.stack = self.below.pop()
            if name == "TUPLE":
                self.stack.append(_together(stack))
        elif name in JOINS:
            stack[-JOINS[name] :] = [_together(stack[-JOINS[name] :])]
        elif name in ("REDUCE", "NEWOBJ"):
            arguments, function = stack.pop(), stack.pop()
            if function.text.endswith(("bytearray", "Storage")) and arguments.text == "number":
                raise LevelheadError("it asks for an array without giving its bytes")
            stack.append(_together([arguments]))
        elif name in DROPS:
            del stack[-DROPS[name] :]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = stack[-1]
        elif name == "GLOBAL":
            self.encodes |= argument == "_codecs encode"
            stack.append(_Value(text=argument))
        elif name in ("BINUNICODE", "SHORT_BINSTRING"):
            self.transforms |= len(argument) < 100 and normalize_encoding(argument).lower() in TRANSFORMS
            stack.append(_Value())
        elif name in PUTS:
            stack.append(_Value(text=PUTS[name]))
        elif name != "PROTO":
            return False
        if self.encodes and self.transforms:
            raise LevelheadError("it encodes bytes as bytes, by which a few become gigabytes")
        return True


def _together(parts: list[_Value]) -> _Value:
    size, depth = 1 + sum(one.size for one in parts), 1 + max((one.depth for one in parts), default=0)
    if depth > MOST_LEVELS or size > MOST_PARTS:
        raise LevelheadError("its values lie too deep in one another")
    return _Value(size, depth, parts[0].text if len(parts) == 1 and parts[0].text == "number" else "")
