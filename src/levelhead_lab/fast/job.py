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
    """A fresh network, its data, recipe and method, and the State to resume from.

    The same as the arguments of `train.fit`.
    """

    net: Net  # its weights are copied to the device, and back to it at the end
    data: Data  # jobs with the same object share one copy on the device
    recipe: Recipe
    method: Method
    seed: int = 0  # of batches and crops
    start: State | None = None  # of the end of an epoch

    @property
    def first(self) -> int:
        """The epoch that it begins with, counted from 0.

        Raises:
            LevelheadError: if it is to resume in the middle of an epoch: graphs are of whole
                epochs.
        """
        if self.start is not None and self.start.step:
            raise LevelheadError(
                f"the fast engine resumes from the end of an epoch, not from step {self.start.step} in it"
            )
        if self.start is None:
            return 0
        return self.start.epoch
