"""How far an epoch is, told while it runs: a graph is queued long before its steps are done.

Behind each graph `Pack.run_steps` queues an event (`add`). When the pack has nothing more to queue
and waits for an epoch, it waits for these events one by one instead, and tells of each (`tell`).
"""

from collections import deque
from typing import NamedTuple

import torch

from ..lab.train import OnBatch


class Mark(NamedTuple):
    """A place in an epoch that is queued, and the event by which it is known to be reached."""

    epoch: int  # counted from 0
    done: int  # batches up to here
    total: int  # batches of the epoch
    event: torch.cuda.Event


class BatchMarks:
    """Tells how many batches are done: on a CPU at once, on CUDA when their events have happened.

    Args:
        report: whom to tell; None: nobody, and no event is made.
        stream: of the pack; None on a CPU.
    """

    def __init__(self, report: OnBatch | None, stream: torch.cuda.Stream | None) -> None:
        self.report = report
        self.stream = stream
        self.queued: deque[Mark] = deque()

    def add(self, epoch: int, done: int, total: int) -> None:
        """Mark that so many batches of an epoch are queued.

        Without a stream they are done already, and told at once.

        Args:
            epoch: counted from 0; it is told from 1 on.
            done: batches up to here.
            total: batches of the epoch.
        """
        if self.report is None:
            return
        if self.stream is None:
            self.report(epoch + 1, done, total)
            return
        event = torch.cuda.Event()
        event.record(self.stream)
        self.queued.append(Mark(epoch, done, total, event))

    def tell(self, epoch: int) -> None:
        """Wait for the batches of the epochs up to this one, and tell each as it is done."""
        while self.report is not None and self.queued and self.queued[0].epoch <= epoch:
            mark = self.queued.popleft()
            mark.event.synchronize()
            self.report(mark.epoch + 1, mark.done, mark.total)
