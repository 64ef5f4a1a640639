"""Where groups of trainings are trained: one after the other on a device of this machine, or all over a Ray cluster."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from ..lab.run import run_packed
from ..lab.spec import Spec
from .plan import Training

Executor = Literal["local", "ray"]
Over = tuple[list[Training], float, str]  # a group, the seconds it took, and what went wrong with one of its runs


def one_device(
    groups: Sequence[list[Training]], runs: str, slots: int, device: str, until: float | None
) -> Iterator[Over]:
    """One group after the other."""
    began = time.monotonic()
    for group in groups:
        if until is not None and time.monotonic() - began > until:
            return
        yield group, *_train([training.spec for training in group], runs, slots, device)


def on_ray(
    groups: Sequence[list[Training]], runs: str, slots: int, device: str, until: float | None
) -> Iterator[Over]:
    """A task for each group, as many at a time as there are GPUs.

    The group of a worker that is lost is begun again, less the runs it had finished.
    """
    try:
        import ray
    except ImportError:
        raise ImportError("the executor ray needs Ray: pip install 'levelhead[ray]'") from None
    began = time.monotonic()
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False)
    unit = "GPU" if device.startswith("cuda") else "CPU"
    places = int(ray.cluster_resources().get(unit, 0))
    if not places:
        raise ValueError("this Ray cluster has no GPU; connect to one that has (RAY_ADDRESS), or use --executor local")
    task = ray.remote(num_gpus=int(unit == "GPU"), num_cpus=1, max_retries=3)(_train)
    waiting, busy = deque(groups), {}
    while waiting or busy:
        while waiting and len(busy) < places:
            if until is not None and time.monotonic() - began > until:
                waiting.clear()
                break
            group = waiting.popleft()
            specs = [training.spec for training in group]
            busy[task.remote(specs, str(Path(runs).absolute()), slots, device)] = group
        done, _ = ray.wait(list(busy), num_returns=1) if busy else ([], [])
        for one in done:
            yield busy.pop(one), *ray.get(one)


def _train(specs: list[Spec], runs: str, slots: int, device: str) -> tuple[float, str]:
    """Train one group; a run that diverges leaves the others trained."""
    began = time.monotonic()
    try:
        run_packed(specs, runs, slots=slots, device=device, half=True, early=False)
    except ValueError as error:
        return time.monotonic() - began, str(error)
    return time.monotonic() - began, ""
