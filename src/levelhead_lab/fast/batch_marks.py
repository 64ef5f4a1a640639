"""How far an epoch is, told while it runs: a graph is queued long before its steps are done."""

from collections import deque
from typing import Any

import torch

from ..lab.train import OnBatch


class BatchMarks:
    """Tells how many batches are done: on a CPU at once, on CUDA when the events behind them have happened."""

    def __init__(self, report: OnBatch | None, stream: Any) -> None:
        self.report = report
        self.stream = stream
        self.queued: deque[tuple[int, int, int, Any]] = deque()  # epoch, batches done, all, event

    def add(self, epoch: int, done: int, total: int) -> None:
        """Mark that so many batches of an epoch are queued; without a stream they are done, and told."""
        if self.report is None:
            return
        if self.stream is None:
            self.report(epoch + 1, done, total)
            return
        event = torch.cuda.Event()
        event.record(self.stream)
        self.queued.append((epoch, done, total, event))

    def tell(self, epoch: int) -> None:
        """Wait for the batches of the epochs up to this one, and tell each as it is done."""
        while self.report is not None and self.queued and self.queued[0][0] <= epoch:
            at, done, total, event = self.queued.popleft()
            event.synchronize()
            self.report(at + 1, done, total)
