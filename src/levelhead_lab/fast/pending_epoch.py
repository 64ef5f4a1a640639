"""An epoch of a pack: while it is queued, and what became of it in each run.

`Pack.advance` queues an epoch and keeps a `PendingEpoch`, whose numbers are not there yet;
`Pack.take_records` waits for them and makes an `EndedEpoch` of each run, for which `fit_many` calls
back.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..lab.train import EpochValues, State


class EndedEpoch(NamedTuple):
    """What became of an epoch of one run."""

    position: int  # of the job among all
    values: EpochValues  # as of `train.fit`, and `<split>_error`, None where it was not measured
    state: State | None  # at its end, if it was to be kept


@dataclass(frozen=True, eq=False)
class PendingEpoch:
    """A queued epoch: its values are valid once the event `done` has happened (at once if None)."""

    epoch: int  # counted from 0
    lr: float  # of its first step
    report: Tensor  # a copy of `EpochWork.report`
    # Copies of rows, momentum, statistics, and means, at its end, if they were asked for.
    kept: tuple[Tensor, ...]
    done: torch.cuda.Event | None
