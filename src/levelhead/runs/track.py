"""Records of epochs sent to TensorBoard or MLflow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from ..core.choices import Tracker
from ..core.errors import LevelheadError, check_choice
from ..show.progress import EpochProgress
from .spec import Spec


@contextmanager
def tracker(kind: Tracker | None, folder: Path, spec: Spec) -> Iterator[EpochProgress]:
    """Give a function to be called with each epoch's record.

    Args:
        kind: `tensorboard` (files in the run's folder), `mlflow` (the store that MLFLOW_TRACKING_URI names), or None.
        folder: the run's.
        spec: what is trained, for MLflow's parameters.
    """
    if kind is None:
        yield lambda record: None
        return
    check_choice("track", kind, get_args(Tracker))
    writer = _TensorBoard(folder) if kind == "tensorboard" else _MLflow(folder, spec)
    try:
        yield writer
    except BaseException:
        writer.close("FAILED")
        raise
    writer.close("FINISHED")


def _metrics(record: dict[str, Any]) -> dict[str, float]:
    """Return what changes from epoch to epoch: losses, errors, and the largest and smallest norm of the head."""
    facts = {key: value for key, value in record.items() if key in ("loss", "lr") or key.endswith("_error")}
    return {**facts, "norm_largest": max(record["norms"]), "norm_smallest": min(record["norms"])}


class _MLflow:
    """An MLflow run, started at the first record, as a finished run has none. The store is checked at once."""

    def __init__(self, folder: Path, spec: Spec):
        try:
            import mlflow  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ImportError("the tracker mlflow needs MLflow: pip install 'levelhead[track]'") from None
        try:
            mlflow.MlflowClient().search_experiments(max_results=1)
        except mlflow.MlflowException as error:
            reason = " ".join(error.message.split())
            raise LevelheadError(f"{mlflow.get_tracking_uri()} does not accept runs ({reason}); set the variable "
                                 "MLFLOW_TRACKING_URI to a server or sqlite:///FILE.db", parameter="track") from None
        self.mlflow, self.name, self.started = mlflow, folder.name, False
        self.parameters = {key: value for key, value in spec.to_dict().items() if value is not None}

    def __call__(self, record: dict[str, Any]) -> None:
        if not self.started:
            self.mlflow.start_run(run_name=self.name)
            self.mlflow.log_params(self.parameters)
            self.started = True
        self.mlflow.log_metrics(_metrics(record), step=record["epoch"])

    def close(self, status: str) -> None:
        if self.started:
            self.mlflow.end_run(status)


class _TensorBoard:
    """A writer into the run's folder, opened at the first record, as a finished run has none."""

    def __init__(self, folder: Path):
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError:
            raise ImportError("the tracker tensorboard needs TensorBoard: pip install 'levelhead[track]'") from None
        self.open, self.writer = lambda: SummaryWriter(str(folder / "tensorboard")), None

    def __call__(self, record: dict[str, Any]) -> None:
        self.writer = self.writer or self.open()
        for key, value in _metrics(record).items():
            self.writer.add_scalar(key, value, record["epoch"])
        self.writer.flush()

    def close(self, status: str) -> None:
        if self.writer is not None:
            self.writer.close()
