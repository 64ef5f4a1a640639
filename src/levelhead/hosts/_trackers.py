"""What the adjustment did, sent to the trackers of a training: TensorBoard, MLflow, Weights & Biases."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PAGE = "levelhead.html"  # the page's name among a run's artifacts


@dataclass(frozen=True, eq=False)
class LevelOutcome:
    """What the adjustment did, for people and trackers."""

    numbers: dict[str, float]  # such as gain, gamma, and the largest over the smallest norm before and after
    text: str  # the same in a few lines
    write_page: Callable[[Path], object]  # writes the page to the .html file it is called with

    def page(self) -> str:
        """Return the page as HTML."""
        with TemporaryDirectory() as folder:
            path = Path(folder, PAGE)
            self.write_page(path)
            return path.read_text(encoding="utf-8")


@dataclass
class Trackers:
    """The trackers that run, remembered while they do: some end their run before training has ended."""

    _mlflow_run: str | None = field(default=None, init=False)
    _wandb_run: Any = field(default=None, init=False)

    def find(self) -> None:
        """Remember the runs of MLflow and of Weights & Biases that are active now."""
        mlflow, wandb = sys.modules.get("mlflow"), sys.modules.get("wandb")
        run = None if mlflow is None else mlflow.active_run()
        self._mlflow_run = self._mlflow_run if run is None else run.info.run_id
        self._wandb_run = getattr(wandb, "run", None) or self._wandb_run

    def send(self, outcome: LevelOutcome, step: int = 0, tensorboard: Path | None = None) -> None:
        """Send numbers and page to every tracker that was found, and to TensorBoard in its folder."""
        self.find()
        if tensorboard is not None:
            from torch.utils.tensorboard.writer import SummaryWriter

            with SummaryWriter(str(tensorboard)) as writer:
                for name, value in outcome.numbers.items():
                    writer.add_scalar(name, value, step)
                writer.add_text("level", outcome.text, step)
        if self._mlflow_run is not None:
            client = sys.modules["mlflow"].MlflowClient()
            for name, value in outcome.numbers.items():
                client.log_metric(self._mlflow_run, name, value, step=step)
            client.log_text(self._mlflow_run, outcome.page(), PAGE)
        if self._wandb_run is not None:
            html = sys.modules["wandb"].Html(outcome.page(), inject=False)
            self._wandb_run.log({**outcome.numbers, "level/page": html})


def tensorboard_folder(output: str | Path) -> Path | None:
    """Return the folder within a training's output that the Hugging Face Trainer's TensorBoard writes to, or None."""
    if given := os.environ.get("TENSORBOARD_LOGGING_DIR"):
        return Path(given).expanduser()
    found = list(Path(output, "runs").glob("**/events.out.*"))
    return max(found, key=lambda path: path.stat().st_mtime).parent if found else None
