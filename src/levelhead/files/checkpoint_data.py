"""What checkpoints hold beside tensors and is data alone: settings, numbers of numpy, paths. Stand-ins take its place.

torch's `weights_only` opens a class or function that a file names only where it was told to. Those of the table are
common in checkpoints and say nothing about the weights, so that something harmless is made instead of each: no code of
another library is run, and it need not be installed.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping


class Settings(dict[object, object]):
    """Named values, as those of an `argparse.Namespace`."""

    def __setstate__(self, state: object) -> None:
        if isinstance(state, Mapping):
            self.update(state)


class Entries:
    """A dict of another class. torch fills only dicts of its own list, so that an OrderedDict is made."""

    def __new__(cls, *arguments: object) -> OrderedDict[object, object]:
        return OrderedDict()


class Discarded:
    """A number, an array, a type or a path, of which nothing is kept."""

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
