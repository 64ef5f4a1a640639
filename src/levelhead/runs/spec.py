"""A spec: everything that decides what a training run computes, as one value, and its identity."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from ..methods import Method, method_named
from ..methods.lookup import place
from ..io.fields import settle_
from ..lab.data import Data, Profile, hold_out, imbalance, load
from ..lab.recipe import Recipe, recipe
from ..core.choices import TrainingDtype, TrainingEngine
from ..core.errors import LevelheadError

DEFAULTS = {  # data -> (network, recipe); a folder or a file of one's own has the last
    "cifar10": ("resnet32", "kim2020"),
    "cifar100": ("resnet32", "kim2020"),
    "tiny-imagenet": ("resnet18-64", "kim2020-64"),
    "digits": ("digits", "digits"),
    "": ("resnet32", "images"),
}

OFFICIAL = ("cifar10", "cifar100", "tiny-imagenet")  # whose files do not change
_read_once = lru_cache(maxsize=1)(load)  # the columns of a table are cut from one set


@dataclass(frozen=True)
class Spec:
    """What to train, on what, and how.

    Args:
        data: `cifar10`, `cifar100`, `tiny-imagenet`, `digits`, or the path of an image folder or .npz file.
        root: folder of the official files.
        method: a name of `METHODS`, with `+rs` or not, or FILE.py:NAME.
        profile, ratio, subset, largest: see `lab.data.imbalance`.
        wanted: counts of one's own, in class order or as (class, n) pairs.
        hold_out: share of each class kept from training, for choosing gamma.
        size, skip_bad: of an image folder.
        unofficial: take CIFAR files of another md5, such as a part of them.
        net: see `lab.nets.build`; the data's usual one if None.
        shortcut, stem: its options.
        recipe: a preset or a .toml file; the data's usual one if None.
        epochs: to which the recipe is stretched or shortened; its own if None.
        seed: of initial weights, batches and crops.
        engine: `plain`, `fast` (CUDA), or `auto`: fast where there is CUDA.
        dtype: float32, float64, or bfloat16 (fast engine).
    """

    data: str
    root: str | None = None
    method: str = "baseline"
    profile: Profile = "given"
    ratio: float = 1.0
    subset: str | int = "first"
    largest: int | None = None
    wanted: tuple[float, ...] | tuple[tuple[str, float], ...] | None = None
    hold_out: float = 0.0
    size: int = 32
    skip_bad: bool = False
    unofficial: bool = False
    net: str | None = None
    shortcut: Literal["A", "B"] = "B"
    stem: Literal["small", "half", "imagenet"] = "small"
    recipe: str | None = None
    epochs: int | None = None
    seed: int = 0
    engine: TrainingEngine = "auto"
    dtype: TrainingDtype = "float32"

    def __post_init__(self) -> None:
        settle_(self, but="wanted")  # which is checked when the classes are known
        check_seed(self.seed)
        if self.epochs is not None and self.epochs < 1:
            raise LevelheadError(f"expected at least 1 epoch, got {self.epochs}")
        if self.profile == "given" and self.ratio != 1:
            raise LevelheadError(f"a ratio ({self.ratio:g}) needs a profile: long-tail or step")
        if self.profile == "given" and self.largest is not None:
            raise LevelheadError(f"a largest count ({self.largest}) needs a profile: long-tail or step, and a ratio")
        if self.profile == "given" and self.wanted is None and self.subset != "first":
            raise LevelheadError(f"a subset ({self.subset}) needs a profile, or counts, for which it is chosen")

    @property
    def title(self) -> str:
        """How people call the run."""
        data = Path(self.data).stem or Path(self.data).resolve().name
        shape = "" if self.profile == "given" else f"-{'lt' if self.profile == 'long-tail' else 'step'}{self.ratio:g}"
        return f"{data}{shape}-{self.trained_as.split('/')[-1].replace('.py:', '-')}-{self.seed}"

    @property
    def trained_as(self) -> str:
        """The method's name without what it does after training: Baseline and Baseline+RS are one run."""
        if ".py" in self.method:
            return self.method.removesuffix("+rs")
        return self.resolve_method().trained_as or self.method

    def resolve_method(self) -> Method:
        """The method by its name."""
        return method_named(self.method)

    def resolve_net(self) -> str:
        """The network's name."""
        return self.net or DEFAULTS.get(self.data, DEFAULTS[""])[0]

    def resolve_recipe(self) -> Recipe:
        """The recipe, over the epochs asked for."""
        return recipe(self.recipe or DEFAULTS.get(self.data, DEFAULTS[""])[1]).over(self.epochs)

    def load(self) -> Data:
        """The data, made imbalanced, with its held-out part."""
        read = _read_once if self.data in OFFICIAL else load
        whole = read(self.data, self.root, size=self.size, skip_bad=self.skip_bad, unofficial=self.unofficial)
        named = self.wanted is not None and isinstance(self.wanted[0], tuple)
        part = imbalance(whole, self.profile, ratio=self.ratio, subset=self.subset, largest=self.largest,
                         wanted=dict(self.wanted) if named else self.wanted)  # type: ignore[arg-type]
        return hold_out(part, self.hold_out)

    @property
    def official(self) -> bool:
        """Whether the data's name says what they are, so that nobody need look."""
        return self.data in (*OFFICIAL, "digits") and not self.unofficial

    @property
    def data_key(self) -> tuple[Any, ...]:
        """What `load` depends on: specs of one key train on the same data."""
        return (self.data, self.root, self.profile, self.ratio, self.subset, self.largest, self.wanted, self.hold_out,
                self.size, self.skip_bad, self.unofficial)

    def identity(self) -> dict[str, Any]:
        """All that makes the numbers of this run, and nothing that does not: no paths, no adjustment."""
        facts = asdict(self)
        for key in ("root", "skip_bad", "unofficial", "epochs"):
            del facts[key]
        facts["data"] = Path(self.data).name or Path(self.data).resolve().name
        facts["method"] = Path(self.trained_as).name
        facts["net"] = self.resolve_net()
        facts["recipe"] = asdict(self.resolve_recipe())
        if not facts["recipe"]["cutout"]:
            del facts["recipe"]["cutout"]  # as in runs of before there was any
        if ".py" in self.method:
            facts["method_sha256"] = hashlib.sha256(place(self.trained_as)[0].read_bytes()).hexdigest()
        return json.loads(json.dumps(facts))

    @property
    def key(self) -> str:
        """Eight hex digits of the identity."""
        return hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()[:8]


def check_seed(seed: int) -> None:
    """A ValueError if torch has no such seed."""
    if seed < 0:
        raise LevelheadError(f"expected a seed from 0 on, got {seed}")
    if seed >= 2**64:
        raise LevelheadError(f"expected a seed below 2**64, got {seed}")
