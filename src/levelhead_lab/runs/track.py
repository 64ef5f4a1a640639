"""Records of epochs sent to TensorBoard, MLflow or Weights & Biases."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from levelhead.support.errors import LevelheadError, check_choice
from levelhead.support.extras import install_command

from ..lab.choices import Tracker
from ..lab.progress import EpochProgress
from .spec import Spec

Log = Callable[[dict[str, float], int], None]  # called with metrics and their epoch
# Returns how to log, and how to end with a status.
Start = Callable[[], tuple[Log, Callable[[str], None]]]


@contextmanager
def tracker(kind: Tracker | None, folder: Path, spec: Spec) -> Iterator[EpochProgress]:
    """Give a function to be called with each epoch's record; tracking starts with the first."""
    if kind is None:
        yield lambda record: None
        return
    check_choice("track", kind, get_args(Tracker))
    facts = {key: value for key, value in spec.to_dict().items() if value is not None}
    title, prepare = _TRACKERS[kind]
    try:
        start = prepare(folder, facts)
    except ImportError:
        raise ImportError(f"the tracker {kind} needs {title}: {install_command(kind)}") from None
    started = None

    def track(record: dict[str, Any]) -> None:
        nonlocal started
        started = started or start()
        metrics = {
            key: value
            for key, value in record.items()
            if key in ("loss", "lr") or key.endswith("_error")
        }
        metrics |= {"norm_largest": max(record["norms"]), "norm_smallest": min(record["norms"])}
        started[0](metrics, record["epoch"])

    status = "FAILED"
    try:
        yield track
        status = "FINISHED"
    finally:
        if started is not None:
            started[1](status)


def _tensorboard(folder: Path, facts: dict[str, Any]) -> Start:
    from torch.utils.tensorboard.writer import SummaryWriter

    def start() -> tuple[Log, Callable[[str], None]]:
        writer = SummaryWriter(str(folder / "tensorboard"))

        def log(metrics: dict[str, float], epoch: int) -> None:
            for key, value in metrics.items():
                writer.add_scalar(key, value, epoch)
            writer.flush()

        return log, lambda status: writer.close()

    return start


def _mlflow(folder: Path, facts: dict[str, Any]) -> Start:
    import mlflow  # pyright: ignore[reportMissingImports]

    try:
        mlflow.MlflowClient().search_experiments(max_results=1)
    except mlflow.MlflowException as error:
        reason = " ".join(error.message.split())
        raise LevelheadError(
            f"{mlflow.get_tracking_uri()} does not accept runs ({reason}); set the variable "
            "MLFLOW_TRACKING_URI to a server or sqlite:///FILE.db",
            parameter="track",
        ) from None

    def start() -> tuple[Log, Callable[[str], None]]:
        mlflow.start_run(run_name=folder.name)
        mlflow.log_params(facts)
        return lambda metrics, epoch: mlflow.log_metrics(metrics, step=epoch), mlflow.end_run

    return start


def _wandb(folder: Path, facts: dict[str, Any]) -> Start:
    import wandb  # pyright: ignore[reportMissingImports]

    def start() -> tuple[Log, Callable[[str], None]]:
        project = os.environ.get("WANDB_PROJECT", "levelhead")
        run = wandb.init(project=project, name=folder.name, dir=folder, config=facts)
        return lambda metrics, epoch: run.log(metrics, step=epoch), lambda status: run.finish(
            status != "FINISHED"
        )

    return start


_TRACKERS = {
    "tensorboard": ("TensorBoard", _tensorboard),
    "mlflow": ("MLflow", _mlflow),
    "wandb": ("Weights & Biases", _wandb),
}
