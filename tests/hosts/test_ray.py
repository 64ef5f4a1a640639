"""Gamma chosen on tables that lie elsewhere is the one that all samples at once choose."""

import os
import signal
import sys
from functools import partial

import numpy as np
import pytest

import levelhead as lh
from levelhead.choice.events import Events
from levelhead.choice.partial import Partial
from levelhead.choice.tune_partial import plan_second_pass
from levelhead.core.errors import LevelheadError
from levelhead.hosts.batches import look_into_batches, read_batch, summarize_batches

COUNTS = [1000, 300, 90, 30]
RNG = np.random.default_rng(0)
LABELS = RNG.choice(4, size=800, p=[0.4, 0.3, 0.2, 0.1])
LOGITS = ((2 + RNG.normal(size=(800, 4)) + 2 * np.eye(4)[LABELS]) * [1.0, 0.8, 0.6, 0.4]).astype(np.float32)
WANTED = {"rule": "rescale", "bootstrap": 0}


def table():
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"logits": list(LOGITS), "labels": LABELS})


def whole_choice() -> float:
    return lh.tune(LOGITS, LABELS, COUNTS, **WANTED).gamma


def test_plain_frames_in_two_passes():
    parts = [table()[a:b] for a, b in ((0, 300), (300, 300), (300, 800))]
    whole = sum(summarize_batches([part], COUNTS) for part in parts)
    assert whole == Partial.of(LOGITS, LABELS, COUNTS, shares=False) == summarize_batches(iter(parts), COUNTS)
    assert summarize_batches(parts, COUNTS, shares=True) == Partial.of(LOGITS, LABELS, COUNTS)
    second = plan_second_pass(whole)
    found = sum(look_into_batches([part], second) for part in parts)
    assert lh.tune(whole.with_events(found), bootstrap=0).gamma == whole_choice()


def test_a_table_that_does_not_fit_is_refused_by_its_column():
    with pytest.raises(LevelheadError, match="expected a column 'scores' in the table, which has logits, labels"):
        read_batch(table(), logits="scores")
    with pytest.raises(LevelheadError, match="as many numbers in every row"):
        read_batch({"logits": np.array([[1.0, 2.0], [1.0]], object), "labels": [0, 1]})


def kill_once(batch, marker):
    """Kill the worker that comes first."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        os.kill(os.getpid(), signal.SIGKILL)
    except FileExistsError:
        pass
    return batch


@pytest.fixture(scope="module")
def ray():
    """Ray on a cluster of two nodes, started by the first test that needs it and shut down after the last."""
    found = pytest.importorskip("ray")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    small = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=small)
    try:
        cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
        found.init(address=cluster.address, log_to_driver=False, configure_logging=False)
        yield found
    finally:
        found.shutdown()
        cluster.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray
def test_ray_runs_a_function_that_uses_lh(ray):
    run = ray.remote(lambda: lh.gamma_path(LOGITS, LABELS, COUNTS).best().gamma)
    assert ray.get(run.remote()) == lh.gamma_path(LOGITS, LABELS, COUNTS).best().gamma


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray
def test_on_a_ray_cluster_of_two_nodes_with_a_worker_killed(ray, tmp_path):
    data = pytest.importorskip("ray.data")
    from levelhead.hosts.ray import summarize_dataset, tune_dataset

    data.DataContext.get_current().enable_progress_bars = False
    assert ray.cluster_resources()["CPU"] == 2
    rows = data.from_pandas([table()[a : a + 200] for a in range(0, 800, 200)])
    marker = tmp_path / "killed"
    tuned = tune_dataset(rows.map_batches(partial(kill_once, marker=str(marker))), COUNTS, batch_size=150, **WANTED)
    assert marker.exists()
    assert tuned.gamma == whole_choice()
    assert summarize_dataset(rows, COUNTS, batch_size=300, shares=True) == Partial.of(LOGITS, LABELS, COUNTS)


@pytest.mark.slow
def test_on_dask():
    dask = pytest.importorskip("dask")
    parts = [dask.delayed(lambda a=a: table()[a : a + 200])() for a in range(0, 800, 200)]
    summarize = dask.delayed(summarize_batches)
    whole = dask.delayed(sum)([summarize([part], COUNTS) for part in parts]).compute(scheduler="threads")
    look = dask.delayed(look_into_batches)
    found = dask.delayed(sum)([look([part], plan_second_pass(whole)) for part in parts]).compute(scheduler="threads")
    assert lh.tune(whole.with_events(found), bootstrap=0).gamma == whole_choice()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Spark
def test_on_spark(monkeypatch):
    pyspark, pandas = pytest.importorskip("pyspark"), pytest.importorskip("pandas")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    session = pyspark.sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        rows = [(row.tolist(), int(label)) for row, label in zip(LOGITS, LABELS, strict=True)]
        frame = session.createDataFrame(rows, "logits array<float>, labels int").repartition(4)

        def first(batches):
            yield pandas.DataFrame({"data": [summarize_batches(batches, COUNTS).to_bytes()]})

        whole = sum(Partial.from_bytes(bytes(row.data)) for row in frame.mapInPandas(first, "data binary").collect())
        second = plan_second_pass(whole)

        def then(batches):
            yield pandas.DataFrame({"data": [look_into_batches(batches, second).to_bytes()]})

        found = sum(Events.from_bytes(bytes(row.data)) for row in frame.mapInPandas(then, "data binary").collect())
        assert lh.tune(whole.with_events(found), bootstrap=0).gamma == whole_choice()
    finally:
        session.stop()
