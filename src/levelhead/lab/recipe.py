"""A recipe: the optimizer's side of a training, apart from the method."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from ..core.errors import LevelheadError
from ..io import text
from ..io.fields import convert_fields_


@dataclass(frozen=True)
class Recipe:
    """SGD with momentum, its schedule, and how images are prepared.

    Args:
        name: of the preset or file.
        epochs: passes over the training set, counted from 0.
        batch: samples in a step; the last, partial batch of an epoch is kept.
        lr: learning rate before any decay.
        momentum, nesterov, weight_decay: of SGD; the decay is on every parameter.
        schedule: `step`: times lr_decay at each of milestones; `cosine`: down to 0 over all epochs.
        warmup: first epochs, over which lr rises linearly.
        pad: zero padding of the random crop; 0 is no crop.
        flip: mirror half of the images.
        cutout: side of the square that is cut out of every training image, see `augment.cut_out`; 0 is none.
        mean, std: per channel, of pixels from 0 to 1; None measures them on the training images.
    """

    name: str
    epochs: int
    batch: int
    lr: float
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    schedule: Literal["step", "cosine"] = "step"
    milestones: tuple[int, ...] = ()
    lr_decay: float = 0.1
    warmup: int = 0
    pad: int = 0
    flip: bool = False
    cutout: int = 0
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for key, least in {"epochs": 1, "batch": 1, "warmup": 0, "pad": 0, "cutout": 0}.items():
            value = getattr(self, key)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise LevelheadError(f"recipe {self.name}: expected {key} as a whole number from {least} on, got {value!r}")
        for key in ("lr", "momentum", "weight_decay", "lr_decay"):
            value = getattr(self, key)
            if not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise LevelheadError(f"recipe {self.name}: expected {key} of at least 0, got {value!r}")
        if self.schedule not in ("step", "cosine"):
            raise LevelheadError(f"recipe {self.name}: expected schedule 'step' or 'cosine', got {self.schedule!r}")
        try:
            convert_fields_(self)
        except ValueError as error:
            raise LevelheadError(f"recipe {self.name}: {error}") from None
        if self.nesterov and not self.momentum:
            raise LevelheadError(f"recipe {self.name}: nesterov needs a momentum above 0")
        if any(value <= 0 for value in self.std or ()):
            raise LevelheadError(f"recipe {self.name}: expected std above 0, got {list(self.std or ())}")
        if (self.mean is None) != (self.std is None) or len(self.mean or ()) != len(self.std or ()):
            raise LevelheadError(f"recipe {self.name}: expected mean and std together, a number for each channel")

    def lr_at(self, epoch: int) -> float:
        """The learning rate of an epoch.

        >>> [round(recipe("kim2020").lr_at(epoch), 6) for epoch in (0, 79, 80, 149, 150)]
        [0.1, 0.1, 0.01, 0.01, 0.001]
        >>> [round(recipe("cao2019").lr_at(epoch), 6) for epoch in (0, 3, 5, 160, 180)]
        [0.02, 0.08, 0.1, 0.001, 1e-05]
        """
        if epoch < self.warmup:
            return self.lr * (epoch + 1) / self.warmup
        if self.schedule == "cosine":
            return self.lr * (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        return self.lr * self.lr_decay ** sum(epoch >= milestone for milestone in self.milestones)

    @property
    def lowered(self) -> int:
        """The first epoch whose learning rate is at most half of the highest; 0 if it never is.

        >>> recipe("kim2020").lowered, recipe("cao2019").lowered, recipe("strong").lowered
        (80, 160, 100)
        """
        low = (epoch for epoch in range(self.warmup, self.epochs) if self.lr_at(epoch) <= self.lr / 2)
        return next(low, 0)

    def over(self, epochs: int | None) -> Recipe:
        """The same schedule stretched or shortened to another number of epochs.

        >>> recipe("kim2020").over(18).milestones
        (8, 15)
        """
        if epochs is None or epochs == self.epochs:
            return self
        share = epochs / self.epochs
        milestones = tuple(round(milestone * share) for milestone in self.milestones)
        return replace(self, epochs=epochs, milestones=milestones, warmup=round(self.warmup * share))


@cache
def presets() -> dict[str, Recipe]:
    """The recipes that come with levelhead, by name."""
    table = tomllib.loads(files("levelhead.lab").joinpath("recipes.toml").read_text(encoding="utf-8"))
    return {name: _recipe(name, values) for name, values in table.items()}


def recipe(name: str | Path) -> Recipe:
    """A preset by its name, or a recipe from a TOML file of one's own."""
    path = Path(name)
    if path.suffix == ".toml":
        try:
            values = tomllib.loads(text.read(path))
        except ValueError as error:
            raise LevelheadError(f"{path}: not a TOML file ({error})") from None
        return _recipe(path.stem, values)
    if str(name) not in presets():
        raise LevelheadError(f"unknown recipe {str(name)!r}; the recipes are {', '.join(presets())}, or give a .toml file")
    return presets()[str(name)]


def _recipe(name: str, values: dict[str, Any]) -> Recipe:
    known = {field.name for field in fields(Recipe)} - {"name"}
    unknown, missing = sorted(values.keys() - known), sorted({"epochs", "batch", "lr"} - values.keys())
    if unknown:
        raise LevelheadError(f"recipe {name}: unknown key {unknown[0]!r}; the keys are {', '.join(sorted(known))}")
    if missing:
        raise LevelheadError(f"recipe {name}: {missing[0]} is missing")
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return Recipe(name=name, **given)
