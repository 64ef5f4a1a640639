"""One training that the fast engine takes."""

from dataclasses import dataclass

from levelhead.support.errors import LevelheadError

from ..lab.data import Data
from ..lab.nets import Net
from ..lab.recipe import Recipe
from ..lab.train import State
from ..methods.method import Method


@dataclass(frozen=True, eq=False)
class Job:
    """A fresh network, its data, recipe and method, and the State to resume from. As for `train.fit`."""

    net: Net
    data: Data
    recipe: Recipe
    method: Method
    seed: int = 0
    start: State | None = None

    @property
    def first(self) -> int:
        """The epoch that it begins with, counted from 0."""
        if self.start is not None and self.start.step:
            raise LevelheadError(
                f"the fast engine resumes from the end of an epoch, not from step {self.start.step} in it"
            )
        if self.start is None:
            return 0
        return self.start.epoch
