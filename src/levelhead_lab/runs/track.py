"""Records of epochs sent to TensorBoard, MLflow or Weights & Biases.

`tracker` gives a function that takes each epoch's record, and ends the tracking with the training. A
tracker is two steps: it is prepared at once, so that a missing package or a server that refuses stops
the command before hours of training; and it is started with the first record, so that a run which is
finished already, or fails at its start, leaves no empty entry. A new one is a function such as
`_tensorboard` and a line in `_TRACKERS`.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from levelhead.support.errors import LevelheadError, check_choice
from levelhead.support.extras import install_command

from ..lab.choices import Tracker
from ..lab.progress import EpochProgress
from .run_folder import EpochRecord
from .spec import Spec

Status = Literal["FINISHED", "FAILED"]  # MLflow's words


class Tracking(NamedTuple):
    """A tracker that has been started."""

    log: Callable[[dict[str, float], int], object]  # called with metrics and their epoch
    end: Callable[[Status], object]  # called once, with how the training ended


Start = Callable[[], Tracking]


@contextmanager
def tracker(kind: Tracker | None, folder: Path, spec: Spec) -> Iterator[EpochProgress]:
    """Give a function to be called with each epoch's record.

    Sent are the loss, the learning rate, the errors, and the largest and smallest norm of the head.

    Args:
        kind: where to; nowhere if None.
        folder: of the run: its name is that of the entry, and TensorBoard's files go into it.
        spec: of the run; its fields are sent as parameters.

    Raises:
        ImportError: if the package is not installed.
        LevelheadError: if the tracker is not known, or MLflow's server does not accept runs.
    """
    if kind is None:
        yield lambda record: None
        return
    check_choice("track", kind, get_args(Tracker))
    parameters = {key: value for key, value in spec.to_dict().items() if value is not None}
    title, prepare = _TRACKERS[kind]
    try:
        start = prepare(folder, parameters)
    except ImportError:
        raise ImportError(f"the tracker {kind} needs {title}: {install_command(kind)}") from None
    tracking: Tracking | None = None

    def track(record: EpochRecord) -> None:
        """Send the metrics of an epoch, and start the tracker with the first."""
        nonlocal tracking
        if tracking is None:
            tracking = start()
        metrics = {}
        for key, value in record.items():
            if key in ("loss", "lr") or key.endswith("_error"):
                metrics[key] = value
        # Of a norm for each class, the two that tell whether imbalance has bent the head.
        metrics["norm_largest"] = max(record["norms"])
        metrics["norm_smallest"] = min(record["norms"])
        tracking.log(metrics, record["epoch"])

    status: Status = "FAILED"
    try:
        yield track
        status = "FINISHED"
    finally:
        if tracking is not None:
            tracking.end(status)


def _tensorboard(folder: Path, parameters: Mapping[str, object]) -> Start:
    """Prepare TensorBoard, which needs no server.

    Event files go into the folder `tensorboard` of the run. The spec is not sent: spec.json lies
    beside them.
    """
    from torch.utils.tensorboard.writer import SummaryWriter

    def start() -> Tracking:
        writer = SummaryWriter(str(folder / "tensorboard"))

        def log(metrics: dict[str, float], epoch: int) -> None:
            for key, value in metrics.items():
                writer.add_scalar(key, value, epoch)
            writer.flush()  # to be seen while the training goes on

        return Tracking(log, lambda status: writer.close())

    return start


def _mlflow(folder: Path, parameters: Mapping[str, object]) -> Start:
    """Prepare MLflow, at the address in MLFLOW_TRACKING_URI.

    Args:
        folder: of the run, whose name is that of the entry.
        parameters: of the spec, to be sent with it.

    Raises:
        LevelheadError: if it does not accept runs.
    """
    import mlflow  # pyright: ignore[reportMissingImports]

    # A server that is not there, or a store that this version has given up, says so only when asked.
    try:
        mlflow.MlflowClient().search_experiments(max_results=1)
    except mlflow.MlflowException as error:
        reason = " ".join(error.message.split())
        raise LevelheadError(
            f"{mlflow.get_tracking_uri()} does not accept runs ({reason}); set the variable "
            "MLFLOW_TRACKING_URI to a server or sqlite:///FILE.db",
            parameter="track",
        ) from None

    def start() -> Tracking:
        mlflow.start_run(run_name=folder.name)
        mlflow.log_params(parameters)
        return Tracking(
            lambda metrics, epoch: mlflow.log_metrics(metrics, step=epoch), mlflow.end_run
        )

    return start


def _wandb(folder: Path, parameters: Mapping[str, object]) -> Start:
    """Prepare Weights & Biases.

    The project is WANDB_PROJECT or `levelhead`; how to log in, and whether to, is its own matter.
    """
    import wandb  # pyright: ignore[reportMissingImports]

    def start() -> Tracking:
        project = os.environ.get("WANDB_PROJECT", "levelhead")
        run = wandb.init(project=project, name=folder.name, dir=folder, config=parameters)
        return Tracking(
            lambda metrics, epoch: run.log(metrics, step=epoch),
            lambda status: run.finish(status != "FINISHED"),  # an exit code: 0 is good
        )

    return start


# What a tracker is called, and what prepares it with a run's folder and parameters.
_TRACKERS: dict[Tracker, tuple[str, Callable[[Path, Mapping[str, object]], Start]]] = {
    "tensorboard": ("TensorBoard", _tensorboard),
    "mlflow": ("MLflow", _mlflow),
    "wandb": ("Weights & Biases", _wandb),
}
