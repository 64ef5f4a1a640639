"""What checkpoints hold beside tensors and is data alone: settings, numbers of numpy, paths.

torch's `weights_only` opens a class or function that a file names only where it was told to. Those
of the table are common in checkpoints and say nothing about the weights, so that something harmless
is made instead of each: no code of another library is run, and it need not be installed.
`load_checkpoint` hands `STAND_INS` to torch as safe globals, each under the name that the file has.

A name must be data to be in the table: whatever a file calls by it, with whatever arguments, the
stand-in does nothing but take them.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping


class Settings(dict[object, object]):
    """Named values, as those of an `argparse.Namespace`.

    A dict, so that the search for tensors looks into it: weights may be among the settings, too.
    """

    def __setstate__(self, state: object) -> None:
        if isinstance(state, Mapping):
            self.update(state)


class Entries:
    """A dict of another class, such as a defaultdict.

    torch fills only dicts of its own list, so that an OrderedDict is made, which is one of them.
    What it was made with, such as the default of a defaultdict, is dropped.
    """

    def __new__(cls, *arguments: object) -> OrderedDict[object, object]:
        return OrderedDict()


class Discarded:
    """A number, an array, a type or a path, of which nothing is kept.

    Pickles make it by its class (`__new__`), by a call or by state: it takes all three.
    """

    def __init__(self, *arguments: object) -> None:
        pass

    def __new__(cls, *arguments: object) -> "Discarded":
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        pass


_SETTINGS = ("argparse.Namespace", "types.SimpleNamespace")
_ENTRIES = (
    "collections.defaultdict",
    "lightning.fabric.utilities.data.AttributeDict",
    "lightning.pytorch.utilities.parsing.AttributeDict",
    "lightning_fabric.utilities.data.AttributeDict",
    "pytorch_lightning.utilities.parsing.AttributeDict",
)
# Versions of numpy before 2 have `numpy.core`, later ones `numpy._core`.
_VALUES = (
    *(f"builtins.{name}" for name in ("int", "float", "str", "bool", "list", "dict")),
    "numpy.dtype",
    "numpy.ndarray",
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("scalar", "_reconstruct")),
    *(f"pathlib.{name}" for name in ("Path", "PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath")),
)  # fmt: skip

# What torch is to make instead of each name: (stand-in, the name in the file).
STAND_INS: list[Callable[..., object] | tuple[Callable[..., object], str]] = [
    *((Settings, name) for name in _SETTINGS),
    *((Entries, name) for name in _ENTRIES),
    *((Discarded, name) for name in _VALUES),
]
