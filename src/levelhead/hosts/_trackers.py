"""What a training's trackers are told: numbers, a line and the page of what was tuned and applied.

`outcome_of` puts these together. Lightning's loggers take them themselves; for the Hugging Face Trainer, which only
logs what it measures, `Trackers` finds the runs that are active and sends them there.

No tracker is imported here: one that was never imported by the user has no run, and `sys.modules` tells. Numbers are
named levelhead/NAME, so that they stand together on a dashboard and collide with none of the trainer's.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, cast

from torch import Tensor

from ..core.class_labels import as_positions
from ..core.tuned import Tuned
from ..heads.adjusted import Adjusted
from ..support.arrays import to_numpy

PAGE = "levelhead.html"  # the page's name among a run's artifacts


class TrackedRun(Protocol):
    """A run of Weights & Biases: what is used of it."""

    def log(self, values: dict[str, object]) -> None: ...


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the adjustment did, for people and trackers.

    Args:
        numbers: by name, all with the prefix levelhead/: `applied` (0 or 1), the `strength` of a rule that has one,
            and with evidence `gain`, `gain_low`, `gain_high`, the metric and the accuracy, each also `_as_trained`.
        text: the same in a line.
        write_page: writes the page to the .html file it is called with. It is made only where somebody wants it: its
            charts take longer than all else here.
    """

    numbers: dict[str, float]
    text: str
    write_page: Callable[[Path], object]

    def page(self) -> str:
        """Return the page as HTML, for trackers that take a text and not a file."""
        with TemporaryDirectory() as folder:
            path = Path(folder, PAGE)
            self.write_page(path)
            return path.read_text(encoding="utf-8")


def outcome_of(
    tuned: Tuned,
    adjusted: Adjusted | None,
    samples: tuple[Tensor, Tensor],
    title: str,
    *,
    features: Tensor | None = None,
) -> Outcome:
    """Return what was tuned on samples, and whether it was applied, in words and numbers.

    Args:
        tuned: what was chosen.
        adjusted: what was done to the head by it; None if nothing was.
        samples: logits [N, K] and labels [N] that it was chosen on.
        title: what the page calls the model.
        features: [N, d], what a head without a bias takes of them; None if it was not chosen by them.
    """
    # Numbers for charts: what was done, what it gains, and what it costs.
    numbers = {"applied": float(adjusted is not None)}
    if tuned.strength is not None:
        numbers["strength"] = tuned.strength
    evidence = tuned.evidence
    if evidence is not None:
        low, high = evidence.interval
        numbers |= {"gain": evidence.gain, "gain_low": low, "gain_high": high}
        name = evidence.metric.name
        numbers |= {f"{name}_as_trained": evidence.value_before, name: evidence.value}
        numbers |= {
            "accuracy_as_trained": float(evidence.before.accuracy),
            "accuracy": float(evidence.after.accuracy),
        }
    # The same in words.
    layers = ""
    if adjusted is not None:
        layers = ", ".join(adjusted.layers) or "the head"
    if adjusted is None:
        stays = "not applied, as no gain was seen: the head stays as it was trained"
        done = f"{stays}; pass anyway=True to apply it all the same"
    else:
        done = f"applied to {layers}"

    def write_page(path: Path) -> None:
        # The page stands above the trainers, and is loaded for this alone.
        from ..report import Applied, of_tuned, write

        applied = None
        if adjusted is not None:
            undo = "callback.adjusted.restore()  # undoes it"
            applied = Applied(f"To {layers}, when the training ended", undo)
        logits, labels = (to_numpy(part) for part in samples)
        positions = as_positions(labels)
        subject = of_tuned(
            tuned, logits, positions, features=features, title=title, applied=applied
        )
        write(path, [subject])

    prefixed = {f"levelhead/{name}": float(value) for name, value in numbers.items()}
    return Outcome(prefixed, f"levelhead: {tuned}; {done}", write_page)


class Trackers:
    """The trackers that run, remembered while they do: some end their run before training has ended.

    The Trainer's own callbacks for MLflow and Weights & Biases are called at the same events as ours, and before it:
    when `on_train_end` is ours, their runs may be closed. So `find` is called at every log, and `send` at the end.
    """

    _mlflow_run: str | None = None
    _wandb_run: TrackedRun | None = None

    def find(self) -> None:
        """Remember the runs of MLflow and of Weights & Biases that are active now."""
        # A tracker that was never imported has no run.
        mlflow = sys.modules.get("mlflow")
        if mlflow is not None:
            run = mlflow.active_run()
            if run is not None:
                self._mlflow_run = run.info.run_id
        run_of_wandb = getattr(sys.modules.get("wandb"), "run", None)
        if run_of_wandb is not None:
            self._wandb_run = cast(TrackedRun, run_of_wandb)

    def send(self, outcome: Outcome, step: int = 0, tensorboard: Path | None = None) -> None:
        """Send numbers and page to every tracker that was found, and to TensorBoard in its folder.

        Args:
            outcome: what to send.
            step: of the training, at which the numbers stand on a chart.
            tensorboard: the folder of the run's events; None if TensorBoard is not used. It takes no page.
        """
        self.find()
        if tensorboard is not None:
            from torch.utils.tensorboard.writer import SummaryWriter

            with SummaryWriter(str(tensorboard)) as writer:
                for name, value in outcome.numbers.items():
                    writer.add_scalar(name, value, step)
                writer.add_text("levelhead", outcome.text, step)
        # By the run's id, as it may have ended: the fluent functions of MLflow would begin another.
        if self._mlflow_run is not None:
            client = sys.modules["mlflow"].MlflowClient()
            for name, value in outcome.numbers.items():
                client.log_metric(self._mlflow_run, name, value, step=step)
            client.log_text(self._mlflow_run, outcome.page(), PAGE)
        if self._wandb_run is not None:
            html = sys.modules["wandb"].Html(outcome.page(), inject=False)
            self._wandb_run.log({**outcome.numbers, "levelhead/page": html})


def tensorboard_folder(output: str | Path) -> Path | None:
    """Return the folder in a training's output that the Hugging Face Trainer's TensorBoard writes to.

    The Trainer keeps its writer to itself. Its events are in runs/DATE_HOST, or where an environment variable says;
    of several runs, the newest is ours. None if there is none.
    """
    named = os.environ.get("TENSORBOARD_LOGGING_DIR")
    if named:
        return Path(named).expanduser()
    logs = list(Path(output, "runs").glob("**/events.out.*"))
    if not logs:
        return None
    return max(logs, key=lambda path: path.stat().st_mtime).parent
