"""A recipe: the optimizer, its schedule and the preparation of images.

It is everything of a training but the method, the network and the data. `find_recipe` returns a
preset of recipes.toml, or reads a user's own .toml file, which has the keys of one of its tables;
`stretched_to` fits its schedule into another number of epochs. A recipe only says; `train`,
`epoch_plan` and `preprocess` do.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeAlias

from levelhead.support import text
from levelhead.support.errors import LevelheadError, in_file
from levelhead.support.fields import convert_fields_

# What a table of TOML holds, as tomllib types it; `Recipe` checks each value.
TomlTable: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """SGD with momentum, its schedule, and how images are prepared.

    All fields are part of a run's identity: two runs with equal recipes compute the same. A new
    field needs a default that changes nothing, and `Spec.identity` leaves it out at that default,
    so that runs keep their names.

    Raises:
        LevelheadError: if a value has another type, is out of its range, or does not go with
            another one; the message begins with the recipe's name.
    """

    # Of the preset or file.
    name: str
    epochs: int
    # Samples per step; the last, partial batch of an epoch is kept.
    batch: int
    # Learning rate before any decay.
    lr: float
    momentum: float = 0.9
    nesterov: bool = False
    # Of every parameter, biases and those of batch norm too, as torch.optim.SGD has it.
    weight_decay: float = 5e-4
    # lr times lr_decay at each of milestones, or down to 0 at the end.
    schedule: Literal["step", "cosine"] = "step"
    # Epochs, counted from 0.
    milestones: tuple[int, ...] = ()
    lr_decay: float = 0.1
    # Epochs at the start, over which lr rises linearly.
    warmup: int = 0
    # Zero padding of the random crop; 0 for no crop.
    pad: int = 0
    # Mirror half of the images.
    flip: bool = False
    # Side of the square cut out of training images, half of their side if they are smaller; 0:
    # none.
    cutout: int = 0
    # TrivialAugment after crop and flip, before cutout.
    augment: Literal["none", "trivial"] = "none"
    # Share of the epochs, the last ones, over which weights are averaged; 0 to keep the last.
    average: float = 0.0
    # Whether class weights have mean 1 over the classes, or over each batch, as torch's own do.
    weights: Literal["class", "batch"] = "class"
    # Whether a method's last stage, such as DRW, begins with the first drop of the rate.
    deferred: bool = False
    # Of a linear head: 0 at first, or log 1/(K-1) and without weight decay.
    bias: Literal["none", "zero", "rare"] = "none"
    # What sets the size of He's initial weights; `fan-in` does so for the head too.
    init: Literal["fan-out", "fan-in"] = "fan-out"
    # Per channel, of pixels from 0 to 1; None to measure the training images.
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        try:
            convert_fields_(self)
            self._check()
        except LevelheadError as error:
            raise LevelheadError(f"recipe {self.name}: {error}") from None

    def _check(self) -> None:
        """Raise LevelheadError if a number is out of its range, or two fields do not go together.

        Types and choices are checked before, by `convert_fields_`, from the annotations.
        """
        lowest = {"epochs": 1, "batch": 1, "warmup": 0, "pad": 0, "cutout": 0}
        lowest |= dict.fromkeys(("lr", "momentum", "weight_decay", "lr_decay"), 0)
        for key, minimum in lowest.items():
            if getattr(self, key) < minimum:
                raise LevelheadError(
                    f"expected at least {minimum}, got {getattr(self, key)}", parameter=key
                )
        if self.momentum >= 1:
            raise LevelheadError(
                f"expected less than 1, got {self.momentum}; with 1 no step is ever forgotten",
                parameter="momentum",
            )
        if not 0 <= self.average <= 1:
            raise LevelheadError(
                f"expected a share from 0 to 1, got {self.average}", parameter="average"
            )
        if self.cutout % 2:
            raise LevelheadError(
                f"expected an even number of pixels, got {self.cutout}", parameter="cutout"
            )
        if self.nesterov and not self.momentum:
            raise LevelheadError("it needs a momentum above 0", parameter="nesterov")
        if any(value <= 0 for value in self.std or ()):
            raise LevelheadError(
                f"expected numbers above 0, got {list(self.std or ())}", parameter="std"
            )
        if (self.mean is None) != (self.std is None) or len(self.mean or ()) != len(self.std or ()):
            raise LevelheadError("expected mean and std together, one number per channel in each")

    def lr_at(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0; it is the same for all its steps.

        The first epoch of a warm-up has lr / warmup, not 0. A cosine is that of the whole training:
        warm-up replaces its first epochs, it does not delay it.

        >>> kim2020 = find_recipe("kim2020")
        >>> [round(kim2020.lr_at(epoch), 4) for epoch in (0, 79, 80, 150)]
        [0.1, 0.1, 0.01, 0.001]
        """
        if epoch < self.warmup:
            return self.lr * (epoch + 1) / self.warmup
        if self.schedule == "cosine":
            return self.lr * (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        return self.lr * self.lr_decay ** sum(epoch >= milestone for milestone in self.milestones)

    @property
    def first_decay_epoch(self) -> int:
        """The first epoch with at most a fifth of the highest learning rate; 0 if there is none.

        A cosine has one, too, after 70 % of the epochs.
        """
        for epoch in range(self.warmup, self.epochs):
            if self.lr_at(epoch) <= self.lr / 5:
                return epoch
        return 0

    def epochs_averaged(self, epoch: int) -> int:
        """Return over how many epochs weights are averaged after an epoch, counted from 0.

        It is 0 before the averaging begins, then 1, 2, ... It is 0 again in a second stage, which
        trains a head alone.

        >>> last_half = Recipe("mine", epochs=4, batch=32, lr=0.1, average=0.5)
        >>> [last_half.epochs_averaged(epoch) for epoch in range(5)]
        [0, 0, 1, 2, 0]
        """
        if not self.average or epoch >= self.epochs:
            return 0
        averaged = max(1, round(self.average * self.epochs))  # of all epochs, the last ones
        return max(0, epoch + 1 + averaged - self.epochs)

    def stretched_to(self, epochs: int | None) -> Recipe:
        """Return the recipe with its whole schedule stretched or shortened to a number of epochs.

        Milestones and warm-up keep their places as shares of the training, rounded to epochs. None
        leaves it as it is.

        >>> find_recipe("kim2020").stretched_to(20).milestones
        (9, 17)
        """
        if epochs is None or epochs == self.epochs:
            return self
        share = epochs / self.epochs
        milestones = tuple(round(milestone * share) for milestone in self.milestones)
        return replace(
            self, epochs=epochs, milestones=milestones, warmup=round(self.warmup * share)
        )


@cache
def presets() -> dict[str, Recipe]:
    """Return the recipes of recipes.toml by name, in its order; read once."""
    content = files("levelhead_lab.lab").joinpath("recipes.toml").read_text(encoding="utf-8")
    return {name: _from_table(name, values) for name, values in tomllib.loads(content).items()}


def find_recipe(name: str | Path) -> Recipe:
    """Return a preset by its name, or the recipe in a .toml file.

    Args:
        name: a table of recipes.toml; or the path of a file that has the keys of one such table, at
            its top level. The recipe is then named as the file.

    Raises:
        LevelheadError: if there is no such preset (the message lists them), or the file is no TOML,
            has unknown keys, lacks one of epochs, batch and lr, or a value is wrong.
    """
    path = Path(name)
    if path.suffix == ".toml":
        try:
            values = parse_toml(text.read(path, "a recipe"))
        except ValueError as error:
            raise LevelheadError(f"{path}: not a TOML file ({error})") from None
        return _from_table(path.stem, values)
    if str(name) not in presets():
        raise LevelheadError(
            f"expected {', '.join(presets())} or a .toml file, got {str(name)!r}",
            parameter="recipe",
        )
    return presets()[str(name)]


def _from_table(name: str, values: TomlTable) -> Recipe:
    """Return the recipe of a TOML table; its keys are fields of `Recipe`, three of them needed.

    Args:
        name: of the recipe: that of the table, or of the file.
        values: of the table, as tomllib reads them.

    >>> _from_table("short", {"epochs": 2, "batch": 32, "lr": 0.1, "milestones": [1]}).milestones
    (1,)
    """
    allowed = {field.name for field in fields(Recipe)} - {"name"}
    for key in sorted(values.keys() - allowed):
        raise LevelheadError(
            f"recipe {name}: unknown key {key!r}; the keys are {', '.join(sorted(allowed))}"
        )
    for key in sorted({"epochs", "batch", "lr"} - values.keys()):
        raise LevelheadError(f"recipe {name}: {key} is missing")
    settings: TomlTable = {}
    for key, value in values.items():
        settings[key] = value
        if isinstance(value, list):  # a recipe is frozen, and can be a key of a dict
            settings[key] = tuple(value)
    recipe = Recipe(name, **settings)
    with in_file(f"recipe {name}"):
        _check_schedule(recipe)
    return recipe


def _check_schedule(recipe: Recipe) -> None:
    """Raise LevelheadError if a part of the schedule would have no effect.

    Of a table as it was written: in a recipe that is shortened, milestones may fall together.
    """
    for epoch in recipe.milestones:
        if recipe.schedule == "cosine":
            reason = "the schedule 'cosine' has none; leave them out, or set schedule to 'step'"
            raise LevelheadError(reason, parameter="milestones")
        if not 0 <= epoch < recipe.epochs:
            raise LevelheadError(
                f"expected epochs from 0 to {recipe.epochs - 1}, got {epoch}",
                parameter="milestones",
            )
    if recipe.warmup > recipe.epochs:
        raise LevelheadError(
            f"expected at most the {recipe.epochs} epochs, got {recipe.warmup}", parameter="warmup"
        )


def parse_toml(content: str) -> TomlTable:
    """Return what TOML text holds.

    Raises:
        ValueError: if it is not TOML, or is nested too deep to be read: tomllib calls itself for
            each level, and a hostile file has thousands.
    """
    try:
        return tomllib.loads(content)
    except RecursionError:
        raise LevelheadError("nested too deep") from None
