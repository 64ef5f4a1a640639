"""What the fast engine is given to train."""

from dataclasses import dataclass

from levelhead.core.errors import LevelheadError
from levelhead.methods.method import Method

from ..lab.data import Data
from ..lab.nets import Net
from ..lab.recipe import Recipe
from ..lab.train import State


@dataclass(frozen=True, eq=False)
class Job:
    """One training: a fresh network, its data, recipe and method, and the State to resume from. As for `train.fit`."""

    net: Net
    data: Data
    recipe: Recipe
    method: Method
    seed: int = 0
    start: State | None = None

    @property
    def first(self) -> int:
        if self.start is not None and self.start.step:
            raise LevelheadError(
                f"the fast engine resumes from the end of an epoch, not from step {self.start.step} in it"
            )
        return 0 if self.start is None else self.start.epoch
