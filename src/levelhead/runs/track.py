"""Epochs' records to TensorBoard or MLflow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .spec import Spec
from ..core.errors import LevelheadError
from ..show.progress import EpochProgress


@contextmanager
def tracker(kind: str | None, folder: Path, spec: Spec) -> Iterator[EpochProgress]:
    """A function to be called with each epoch's record.

    Args:
        kind: `tensorboard` (files in the run's folder), `mlflow` (where MLFLOW_TRACKING_URI says), or None.
        folder: the run's.
        spec: what is trained, for MLflow's parameters.
    """
    if kind is None:
        yield lambda record: None
    elif kind == "tensorboard":
        writer = _TensorBoard(folder)
        yield writer
        writer.close()
    elif kind == "mlflow":
        writer = _MLflow(folder, spec)
        try:
            yield writer
        except BaseException:
            writer.close("FAILED")
            raise
        writer.close("FINISHED")
    else:
        raise LevelheadError(f"expected --track tensorboard or mlflow, got {kind!r}")


def _numbers(record: dict[str, Any]) -> dict[str, float]:
    """What changes from epoch to epoch: losses, errors, and the spread of the head's norms."""
    norms = record["norms"]
    facts = {key: value for key, value in record.items() if key in ("loss", "lr") or key.endswith("_error")}
    return {**facts, "norm_largest": max(norms), "norm_smallest": min(norms)}


class _MLflow:
    """A run of MLflow, from the first record on: before it, there may never be a run. Its store is asked at once."""

    def __init__(self, folder: Path, spec: Spec):
        try:
            import mlflow  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ImportError("--track mlflow needs MLflow: pip install 'levelhead[track]'") from None
        try:
            mlflow.MlflowClient().search_experiments(max_results=1)
        except mlflow.MlflowException as error:
            said = " ".join(error.message.split())
            raise LevelheadError(f"--track mlflow: {mlflow.get_tracking_uri()} does not take runs ({said}); set "
                             f"MLFLOW_TRACKING_URI to a server, or to sqlite:///FILE.db") from None
        self.mlflow, self.name, self.begun = mlflow, folder.name, False
        self.parameters = {key: value for key, value in spec.to_dict().items() if value is not None}

    def __call__(self, record: dict[str, Any]) -> None:
        if not self.begun:
            self.mlflow.start_run(run_name=self.name)
            self.mlflow.log_params(self.parameters)
            self.begun = True
        self.mlflow.log_metrics(_numbers(record), step=record["epoch"])

    def close(self, status: str) -> None:
        if self.begun:
            self.mlflow.end_run(status)


class _TensorBoard:
    """Writes into the run's folder from the first record on: before it, there may never be a run."""

    def __init__(self, folder: Path):
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError:
            raise ImportError("--track tensorboard needs TensorBoard: pip install 'levelhead[track]'") from None
        self.open, self.writer = lambda: SummaryWriter(str(folder / "tensorboard")), None

    def __call__(self, record: dict[str, Any]) -> None:
        self.writer = self.writer or self.open()
        for key, value in _numbers(record).items():
            self.writer.add_scalar(key, value, record["epoch"])
        self.writer.flush()

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
