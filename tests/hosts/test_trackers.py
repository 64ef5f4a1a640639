"""What adjusting did, in MLflow and Weights & Biases: numbers and page, also where a run has ended before."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from levelhead.hosts._trackers import PAGE, Outcome, Trackers, tensorboard_folder

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

OUTCOME = Outcome(
    {"levelhead/gain": 0.25, "levelhead/strength": 1.5},
    "in words",
    lambda path: path.write_text("<p>page</p>"),
)


def test_mlflow_gets_numbers_and_page_after_its_run_has_ended(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    trackers = Trackers()
    with mlflow.start_run() as run:
        trackers.find()
    trackers.send(OUTCOME, 7)
    logged = mlflow.get_run(run.info.run_id)
    assert logged.data.metrics == {"levelhead/gain": 0.25, "levelhead/strength": 1.5}
    client = mlflow.MlflowClient()
    assert client.get_metric_history(run.info.run_id, "levelhead/gain")[0].step == 7
    assert (
        Path(client.download_artifacts(run.info.run_id, PAGE, str(tmp_path))).read_text()
        == "<p>page</p>"
    )


WANDB = """
import sys, wandb
from levelhead.hosts._trackers import Outcome, Trackers
wandb.init(project="levelhead", dir=sys.argv[1])
trackers = Trackers()
trackers.find()
trackers.send(Outcome({"levelhead/gain": 0.25}, "in words", lambda path: path.write_text("<p>page</p>")))
print("gain", wandb.run.summary["levelhead/gain"])
wandb.finish()
"""


def test_wandb_gets_numbers_and_page_offline(tmp_path):
    pytest.importorskip("wandb")
    variables = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    command = [sys.executable, "-c", WANDB, str(tmp_path)]
    done = subprocess.run(
        command, check=True, env=variables, timeout=100, text=True, capture_output=True
    )
    assert "gain 0.25\n" in done.stdout
    pages = list(tmp_path.glob("wandb/offline-run-*/files/media/html/**/*.html"))
    assert [page.read_text() for page in pages] == ["<p>page</p>"]


def test_folder_of_tensorboard_is_the_newest_or_the_one_named(tmp_path, monkeypatch):
    assert tensorboard_folder(tmp_path) is None
    for age, name in ((50, "old"), (5, "new")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        file = tmp_path / "runs" / name / "events.out.tfevents.1"
        file.write_bytes(b"")
        os.utime(file, (1_000_000 - age, 1_000_000 - age))
    assert tensorboard_folder(tmp_path) == tmp_path / "runs" / "new"
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "mine"))
    assert tensorboard_folder(tmp_path) == tmp_path / "mine"
