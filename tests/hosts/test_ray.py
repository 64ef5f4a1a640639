"""Gamma chosen on tables that lie elsewhere is the one that all samples at once choose."""

import os
import pickle
import signal
import sys
from functools import partial

import numpy as np
import pytest

import levelhead as lh
from levelhead.choice.chunked import chunk_path
from levelhead.support.errors import LevelheadError

COUNTS = [1000, 300, 90, 30]
RNG = np.random.default_rng(0)
LABELS = RNG.choice(4, size=800, p=[0.4, 0.3, 0.2, 0.1])
LOGITS = ((2 + RNG.normal(size=(800, 4)) + 2 * np.eye(4)[LABELS]) * [1.0, 0.8, 0.6, 0.4]).astype(
    np.float32
)
WANTED = {"rule": "rescale", "bootstrap": 50}


def table():
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"logits": list(LOGITS), "labels": LABELS})


def whole_choice(**options) -> lh.Tuned:
    return lh.tune(LOGITS, LABELS, COUNTS, **{**WANTED, **options})


def assert_same(got: lh.Tuned, want: lh.Tuned) -> None:
    assert (got.gamma, got.interval, got.gain_interval) == (
        want.gamma,
        want.interval,
        want.gain_interval,
    )


def test_a_table_that_does_not_fit_is_refused_by_its_column():
    pytest.importorskip("ray.data")
    from levelhead.hosts.ray import _read_batch

    with pytest.raises(
        LevelheadError, match="expected a column 'scores' in the table, which has logits, labels"
    ):
        _read_batch(table(), "scores", "labels")
    with pytest.raises(LevelheadError, match="as many numbers in every row"):
        _read_batch(
            {"logits": np.array([[1.0, 2.0], [1.0]], object), "labels": [0, 1]}, "logits", "labels"
        )


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
    from levelhead.hosts.ray import tune_dataset

    data.DataContext.get_current().enable_progress_bars = False
    assert ray.cluster_resources()["CPU"] == 2
    rows = data.from_pandas([table()[a : a + 200] for a in range(0, 800, 200)])
    marker = tmp_path / "killed"
    tuned = tune_dataset(
        rows.map_batches(partial(kill_once, marker=str(marker))), COUNTS, batch_size=150, **WANTED
    )
    assert marker.exists()
    assert_same(tuned, whole_choice())
    options = {"metric": lh.Goal("macro_f1", floors=0.3)}
    assert_same(
        tune_dataset(rows, COUNTS, batch_size=300, **WANTED, **options), whole_choice(**options)
    )


@pytest.mark.slow
def test_on_dask():
    dask = pytest.importorskip("dask")
    frames = [dask.delayed(table)()[a:b] for a, b in ((0, 300), (300, 800))]
    path_of = dask.delayed(
        lambda frame: chunk_path(np.stack(frame["logits"]), frame["labels"], COUNTS)
    )
    parts = dask.compute(*(path_of(frame) for frame in frames), scheduler="threads")
    assert_same(lh.tune_chunks(parts, COUNTS, **WANTED), whole_choice())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Spark
def test_on_spark(monkeypatch):
    pyspark, pandas = pytest.importorskip("pyspark"), pytest.importorskip("pandas")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    session = (
        pyspark.sql.SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    try:
        rows = [(row.tolist(), int(label)) for row, label in zip(LOGITS, LABELS, strict=True)]
        frame = session.createDataFrame(rows, "logits array<float>, labels int").coalesce(4)

        def paths(batches):
            for batch in batches:
                path = chunk_path(np.stack(batch["logits"]), batch["labels"].to_numpy(), COUNTS)
                yield pandas.DataFrame({"path": [pickle.dumps(path)]})

        parts = [
            pickle.loads(bytes(row.path))
            for row in frame.mapInPandas(paths, "path binary").toLocalIterator()
        ]
        assert_same(lh.tune_chunks(parts, COUNTS, **WANTED), whole_choice())
    finally:
        session.stop()
