"""A spec: everything that decides what a training computes, as one value with an identity.

A `Spec` is made of plain words and numbers, as people give them on the command line or in a grid. It
is cheap to make and to compare, and loads nothing until it is asked: `load` reads the data,
`resolve_net`, `resolve_recipe`, `resolve_method` and `resolve_subset` say what the words stand for,
with the usual choice for the data where nothing was said.

`identity` is what of it decides the numbers, and `key` a short hash of that, which is part of the
name of a run's folder: the same command finds its run again, and two specs that compute the same
share one. What is done after training (`+rs`) is no part of it, nor is the place of the files.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from levelhead.support.errors import LevelheadError
from levelhead.support.fields import convert_fields_

from ..lab.choices import Profile, TrainingDtype, TrainingEngine
from ..lab.data import Data, check_share, hold_out, imbalance
from ..lab.load import OFFICIAL, TINY, load
from ..lab.recipe import Recipe, find_recipe
from ..lab.source_methods import SOURCE_METHODS
from ..methods.method import Method
from ..methods.table import method_file, method_named

DEFAULTS = {  # data -> (network, recipe); the last is for the user's own images
    "cifar10": ("resnet32", "kim2020"),
    "cifar100": ("resnet32", "kim2020"),
    **dict.fromkeys(TINY, ("resnet18-64", "kim2020-64")),
    "digits": ("digits", "digits"),
    "": ("resnet32", "images"),
}

# The columns of a table are parts of one data set: the last official one that was read is kept.
_load_once = lru_cache(maxsize=1)(load)


@dataclass(frozen=True)
class Spec:
    """What to train, on what, and how.

    Example:
        >>> spec = Spec("digits", method="wvn+rs", profile="long-tail", ratio=20, seed=1)
        >>> spec.title, spec.resolve_net(), spec.trained_as
        ('digits-lt20-wvn-1', 'digits', 'wvn')
        >>> spec.key == Spec("digits", method="wvn", profile="long-tail", ratio=20, seed=1).key
        True

    Raises:
        LevelheadError: if a field has a value that it cannot have, or a pair that does not fit.
    """

    # A name of `lab.load`, such as `cifar10` or `digits`, or the path of an image folder or .npz.
    data: str
    # Folder of the official files of CIFAR and Tiny ImageNet.
    root: str | None = None
    # A name in `METHODS`, with or without `+rs`, or FILE.py:NAME.
    method: str = "baseline"
    # Which training samples are kept; for these five, see `lab.data.imbalance`.
    profile: Profile = "given"
    ratio: float = 1.0
    subset: str | int | None = None  # None: see `resolve_subset`
    largest: int | None = None
    counts: tuple[float, ...] | tuple[tuple[str, float], ...] | None = None  # or (class, n)
    # Share of each class held out of training, on which gamma is chosen.
    hold_out: float = 0.0
    # To which the images of a folder are resized.
    size: int = 32
    # Leave unreadable images of a folder out.
    skip_bad: bool = False
    # Accept CIFAR files with another md5, such as a part of them.
    unofficial: bool = False
    # For these three, see `lab.nets.build`; the data's usual network if None.
    net: str | None = None
    shortcut: Literal["A", "B", "pool"] = "B"
    stem: Literal["small", "half", "imagenet"] = "small"
    # A preset or a .toml file; the usual recipe of the data if None.
    recipe: str | None = None
    # Length to which the recipe is stretched or shortened; its own if None.
    epochs: int | None = None
    # Of initial weights, batches and crops.
    seed: int = 0
    # `plain`, `fast` (made for CUDA), or `auto`: see `run.uses_fast_engine`.
    engine: TrainingEngine = "auto"
    # See `fast.precision`; all but float32 and float64 need the fast engine.
    dtype: TrainingDtype = "float32"

    def __post_init__(self) -> None:
        # What can be told without the data; an option that would do nothing is refused.
        convert_fields_(self, but="counts")  # checked when the classes are known
        check_seed(self.seed)
        check_share(self.hold_out)
        if self.epochs is not None and self.epochs < 1:
            raise LevelheadError(
                f"expected at least 1 epoch, got {self.epochs}", parameter="epochs"
            )
        if self.profile == "given" and self.ratio != 1:
            raise LevelheadError(
                f"{self.ratio:g} needs the profile 'long-tail' or 'step'", parameter="ratio"
            )
        if self.profile == "given" and self.largest is not None:
            raise LevelheadError(
                "needs a ratio, and the profile 'long-tail' or 'step'", parameter="largest"
            )
        if self.profile == "given" and self.counts is None and self.subset not in (None, "first"):
            raise LevelheadError(
                "needs a profile or counts to choose the samples for", parameter="subset"
            )

    @property
    def title(self) -> str:
        """What it is called: data, imbalance, method and seed, such as `cifar10-lt100-wvn-0`.

        For people: two specs may have the same one, and differ in their key.
        """
        data = Path(self._data_name).stem
        shape = ""
        if self.profile == "long-tail":
            shape = f"-lt{self.ratio:g}"
        elif self.profile == "step":
            shape = f"-step{self.ratio:g}"
        # Of my/own.py:METHOD, `own-METHOD`: it becomes part of the name of a folder.
        method = self.trained_as.split("/")[-1].replace(".py:", "-")
        return f"{data}{shape}-{method}-{self.seed}"

    @property
    def _data_name(self) -> str:
        """The name of the data or, for a path, of its file or folder, however the path is written.

        A folder that moves keeps its runs; that the data are the same is checked by their hash.
        """
        name = Path(self.data).name
        if name in ("", ".."):
            return Path(self.data).resolve().name
        return name

    @property
    def trained_as(self) -> str:
        """The method's name without its adjustment after training: Baseline and Baseline+RS are one run."""
        # A user's file is not run for its name alone.
        if ".py" in self.method:
            return self.method.removesuffix("+rs")
        return self.resolve_method().trained_as or self.method

    def resolve_method(self) -> Method:
        """Return the method by its name. If the name is FILE.py:NAME, that file is run."""
        return SOURCE_METHODS.get(self.method) or method_named(self.method)

    def resolve_net(self) -> str:
        """Return the network's name: its own, or the usual one of the data."""
        if self.net is None:
            return DEFAULTS.get(self.data, DEFAULTS[""])[0]
        return self.net

    def resolve_recipe(self) -> Recipe:
        """Return the recipe, its own or the usual one of the data, in the number of epochs asked for."""
        usual = DEFAULTS.get(self.data, DEFAULTS[""])[1]
        return find_recipe(self.recipe or usual).stretched_to(self.epochs)

    def resolve_subset(self) -> str | int:
        """Return which samples are kept: the `first` of official files, or of others those drawn by a seed.

        Official files are the same for everybody, and so are their first samples. The first files of
        a folder may all be of one camera or one day.
        """
        if self.subset is not None:
            return self.subset
        whole = self.profile == "given" and self.counts is None
        if whole or self.data in (*OFFICIAL, "digits"):
            return "first"
        return 0

    def load(self) -> Data:
        """Read the data, make them imbalanced, and hold a part of them out.

        Raises:
            LevelheadError: if the data cannot be read, or have fewer samples than are asked for.
        """
        read = load
        if self.data in OFFICIAL:
            read = _load_once
        whole = read(
            self.data, self.root, size=self.size, skip_bad=self.skip_bad, unofficial=self.unofficial
        )
        counts = self.counts
        if counts is not None and isinstance(counts[0], tuple):  # of classes by name
            counts = dict(counts)  # type: ignore[arg-type]
        part = imbalance(
            whole,
            self.profile,
            ratio=self.ratio,
            subset=self.resolve_subset(),
            largest=self.largest,
            counts=counts,  # type: ignore[arg-type]
        )
        return hold_out(part, self.hold_out)

    @property
    def official(self) -> bool:
        """Whether the name alone identifies the data, so that they need not be read.

        The official files of CIFAR are checked by their md5 when they are read.
        """
        return self.data in (*OFFICIAL, "digits") and not self.unofficial

    @property
    def data_key(self) -> tuple[object, ...]:
        """What `load` depends on: specs with equal keys train on the same data, which are loaded once."""
        return (
            self.data,
            self.root,
            self.size,
            self.skip_bad,
            self.unofficial,
            self.profile,
            self.ratio,
            self.resolve_subset(),
            self.largest,
            self.counts,
            self.hold_out,
        )

    def to_dict(self) -> dict[str, object]:
        """Return the fields as run folders hold them: `counts` is written as `wanted`, its first name."""
        values = {}
        for name, value in asdict(self).items():
            if name == "counts":
                name = "wanted"
            values[name] = value
        return values

    def identity(self) -> dict[str, object]:
        """Return everything that decides the numbers of this run and nothing else: no paths, no adjustment.

        Names stand for what they resolve to: a recipe with all its fields, so that a preset changed
        in a later version, or a .toml that was edited, is another run. It is as JSON would give it
        back, with lists for tuples, to be compared with the one in spec.json.
        """
        facts = self.to_dict()
        # The recipe already has the number of epochs.
        for key in ("root", "skip_bad", "unofficial", "epochs"):
            del facts[key]
        recipe = asdict(self.resolve_recipe())
        # At their defaults left out, so that runs and records older than these fields keep their names.
        newer = {
            "cutout": 0,
            "augment": "none",
            "average": 0.0,
            "weights": "class",
            "deferred": False,
            "bias": "none",
            "init": "fan-out",
        }
        for field, default in newer.items():
            if recipe[field] == default:
                del recipe[field]
        facts |= {
            "data": self._data_name,
            "net": self.resolve_net(),
            "method": Path(self.trained_as).name,
            "recipe": recipe,
            "subset": self.resolve_subset(),
        }
        # The code of a method of the user's own decides, whatever its file is called.
        if ".py" in self.method:
            source = method_file(self.trained_as)[0].read_bytes()
            facts["method_sha256"] = hashlib.sha256(source).hexdigest()
        return json.loads(json.dumps(facts))

    @property
    def key(self) -> str:
        """A short hash of the identity: runs with the same one compute the same.

        Eight hex digits are 32 bits. That is enough for a folder of runs; should two ever be the same,
        `session.check_same` compares the identities themselves, and refuses.
        """
        content = json.dumps(self.identity(), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:8]


def check_seed(seed: int) -> None:
    """Raise LevelheadError if torch could not take a seed."""
    if not 0 <= seed < 2**64:
        raise LevelheadError(f"expected a seed from 0 to 2**64 - 1, got {seed}", parameter="seed")
