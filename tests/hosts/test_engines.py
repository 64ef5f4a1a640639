"""What is tuned on tables that lie elsewhere is what all samples at once give: Ray, Dask and Spark."""

import os
import shutil
import signal
import sys
from functools import partial
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import pytest

import levelhead as lh
from levelhead.core import chunks
from levelhead.hosts._columns import ScoreTable

COUNTS = [1000, 300, 90, 30]
RNG = np.random.default_rng(0)
LABELS = RNG.choice(4, size=3000, p=[0.6, 0.25, 0.1, 0.05])
LOGITS = 2 * np.eye(4)[LABELS] + RNG.normal(size=(3000, 4)) + np.log(COUNTS)
LOGITS = LOGITS.astype(np.float32)
SPLITS = [0, 700, 1500, 1501, 2400, 3000]
METRICS = ["balanced_error", lh.Goal("macro_f1", floors=0.3)]
PARAMETERS = {"metric": METRICS[1], "rule": "shift", "level": 0.9, "chosen_on": "elsewhere"}


@pytest.fixture(params=[False, True], ids=["all in the part", "judged on all"])
def few_in_the_part(request, monkeypatch):
    """Let a rule be fitted on half the samples, so that the data are read again."""
    if request.param:
        defaults = (None, "logits", 4 * 1500)  # names, kind, and numbers in the part
        monkeypatch.setattr(chunks.ChunkReader.__init__, "__defaults__", defaults)
    return request.param


def frame(begin=0, end=3000):
    pandas = pytest.importorskip("pandas")
    scores = {f"score {k}": LOGITS[begin:end, k] for k in range(4)}
    one_column = {"logits": list(LOGITS[begin:end]), "labels": LABELS[begin:end]}
    return pandas.DataFrame({**one_column, **scores, "other": "text"})


def parts():
    return [frame(begin, end) for begin, end in pairwise(SPLITS)]


def assert_same(tuned, **options):
    """Compare with one chunk: equal but for the folds and, of part of the samples, the part."""
    whole = lh.tune_chunks([(LOGITS, LABELS)], COUNTS, **options)
    assert tuned.n == whole.n == 3000
    assert tuned.rule == whole.rule
    assert tuned.verdict == whole.verdict == "better"
    assert tuned.gain == pytest.approx(whole.gain, abs=1.5 * whole.evidence.standard_error)
    offsets = tuned.adjustment.offset - tuned.adjustment.offset.mean()
    expected = whole.adjustment.offset - whole.adjustment.offset.mean()
    np.testing.assert_allclose(offsets, expected, atol=0.3)
    np.testing.assert_array_equal(tuned.evidence.before.right, whole.evidence.before.right)


def assert_options_and_columns_count(tune, table):
    """Tune with logits in four columns, with other options, and with columns that are not there."""
    columns = [f"score {k}" for k in range(4)]
    tuned = tune(table, COUNTS, logits=columns, **PARAMETERS)
    assert_same(tuned, **PARAMETERS)
    assert (tuned.metric, tuned.chosen_on, tuned.evidence.level) == ("macro_f1", "elsewhere", 0.9)
    with pytest.raises(lh.LevelheadError, match="expected a column 'scores' in the table, which"):
        tune(table, COUNTS, logits="scores")
    with pytest.raises(lh.LevelheadError, match=r"expected numbers|expected logits"):
        tune(table, COUNTS, logits="other")


# -- without an engine ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS, ids=["balanced error", "macro F1 with floors"])
def test_the_same_samples_in_other_chunks_give_the_same(metric, few_in_the_part):
    split = [(LOGITS[a:b], LABELS[a:b]) for a, b in pairwise(SPLITS)]
    assert_same(lh.tune_chunks(split, COUNTS, metric=metric), metric=metric)


def test_a_table_that_does_not_fit_is_refused_by_its_column():
    with pytest.raises(lh.LevelheadError, match="column 'scores' in the table, which has logits"):
        ScoreTable("scores", "labels").read(frame())
    ragged = {"logits": np.array([[1.0, 2.0], [1.0]], object), "labels": [0, 1]}
    of_a_bag = {"logits": [[1.0, 2.0], [1.0]], "labels": [0, 1]}
    for table in (ragged, of_a_bag):
        with pytest.raises(lh.LevelheadError, match="as many numbers in every row"):
            ScoreTable("logits", "labels").read(table)
    with pytest.raises(lh.LevelheadError, match="expected numbers in the column 'other', got text"):
        ScoreTable("other", "labels").read(frame())
    with pytest.raises(lh.LevelheadError, match="different columns, got 'labels' twice"):
        ScoreTable(["score 0", "labels"], "labels").read(frame())
    with pytest.raises(
        lh.LevelheadError, match="logits: expected a column, or K of them, got none"
    ):
        ScoreTable([], "labels").read(frame())


def test_names_of_columns_are_those_of_the_classes():
    """As titles of a data frame are for `tune`: a column is of the class that it is called by."""
    read = ScoreTable(["cat", "ant", "bee"], "labels").reader
    assert read(None, None, "logits").names == ["cat", "ant", "bee"]
    assert read({"bee": 1, "ant": 2, "cat": 3}, None, "logits").names == ["cat", "ant", "bee"]
    with pytest.raises(lh.LevelheadError, match="another order"):
        read(None, ["ant", "bee", "cat"], "logits")
    assert ScoreTable("logits", "labels").reader(None, ["a", "b"], "logits").names == ["a", "b"]


def test_columns_of_a_data_frame_are_logits():
    columns = [f"score {k}" for k in range(4)]
    for logits in ("logits", columns):
        scores, labels = ScoreTable(logits, "labels").read(frame())
        np.testing.assert_array_equal(scores, LOGITS)
        np.testing.assert_array_equal(labels, LABELS)


# -- Dask -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def dask():
    dask = pytest.importorskip("dask")
    with dask.config.set(scheduler="threads"):
        yield dask


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Dask
def test_on_a_dask_dataframe(dask, few_in_the_part):
    dataframes = pytest.importorskip("dask.dataframe")
    from levelhead.hosts.dask import tune_dataframe

    with dask.config.set({"dataframe.convert-string": False}):  # which would make text of lists
        delayed = [dask.delayed(part) for part in [*parts(), frame(0, 0)]]  # the last has no row
        table = dataframes.from_delayed(delayed, meta=frame(0, 0), verify_meta=False)
        assert_same(tune_dataframe(table, COUNTS))
        if few_in_the_part:
            assert_options_and_columns_count(tune_dataframe, table)


@pytest.mark.slow
def test_on_a_dask_bag_of_dicts(dask, few_in_the_part):
    bags = pytest.importorskip("dask.bag")
    from levelhead.hosts.dask import tune_dataframe

    items = [{"z": row, "y": label} for row, label in zip(LOGITS, LABELS.tolist(), strict=True)]
    bag = bags.from_sequence(items, npartitions=11)
    assert_same(tune_dataframe(bag, COUNTS, logits="z", labels="y"))
    with pytest.raises(lh.LevelheadError, match="a column 'labels' in the table, which has z, y"):
        tune_dataframe(bag, COUNTS, logits="z")
    with pytest.raises(lh.LevelheadError, match="got a bag of tuple"):
        tune_dataframe(bags.from_sequence([(LOGITS[0], 0)]), COUNTS)
    with pytest.raises(lh.LevelheadError, match=r"expected a Dask dataframe, .*, got DataFrame"):
        tune_dataframe(frame(), COUNTS)


# -- Ray --------------------------------------------------------------------------------------------------------------


def kill_once(batch, marker):
    """Kill the worker that comes first."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        os.kill(os.getpid(), signal.SIGKILL)
    except FileExistsError:
        pass
    return batch


@pytest.fixture(scope="module")
def ray(start_ray):
    """Ray on a cluster of two nodes, started by the first test that needs it."""
    library = pytest.importorskip("ray")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    small = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
    begin = partial(cluster_utils.Cluster, initialize_head=True, head_node_args=small)
    cluster = start_ray(begin)
    try:
        start_ray(partial(cluster.add_node, num_cpus=1, object_store_memory=100 << 20))
        library.init(address=cluster.address, log_to_driver=False, configure_logging=False)
        yield library
    finally:
        library.shutdown()
        cluster.shutdown()


@pytest.fixture
def dataset(ray):
    data = pytest.importorskip("ray.data")
    data.DataContext.get_current().enable_progress_bars = False
    return data.from_pandas(parts())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray
def test_ray_runs_a_function_that_uses_lh(ray):
    run = ray.remote(lambda: lh.tune(LOGITS, LABELS, COUNTS).adjustment.offset)
    expected = lh.tune(LOGITS, LABELS, COUNTS).adjustment.offset
    np.testing.assert_allclose(ray.get(run.remote()), expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray
def test_on_a_ray_dataset(dataset, few_in_the_part):
    from levelhead.hosts.ray import tune_dataset

    assert_same(tune_dataset(dataset, COUNTS))
    if few_in_the_part:
        assert_options_and_columns_count(tune_dataset, dataset)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray
def test_on_a_ray_cluster_of_two_nodes_with_a_worker_killed(ray, dataset, tmp_path):
    from levelhead.hosts.ray import tune_dataset

    assert ray.cluster_resources()["CPU"] == 2
    marker = tmp_path / "killed"
    killing = dataset.map_batches(partial(kill_once, marker=str(marker)), batch_size=None)
    assert_same(tune_dataset(killing, COUNTS))
    assert marker.exists()


# -- Spark ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spark():
    """Spark in this process, on two threads."""
    if find_spec("pyspark") is None:
        pytest.skip("Spark is not installed: pip install pyspark")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java: apt-get install default-jre-headless")
    from pyspark.sql import SparkSession

    set_before = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    # Chunks end within a partition, too.
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "400")
    session = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()
        if set_before is None:
            del os.environ["PYSPARK_PYTHON"]
        else:
            os.environ["PYSPARK_PYTHON"] = set_before


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Spark
def test_on_a_spark_dataframe(spark, few_in_the_part):
    from levelhead.hosts.spark import tune_dataframe

    rows = [
        (row.tolist(), int(label), *row.tolist(), "text")
        for row, label in zip(LOGITS, LABELS, strict=True)
    ]
    scores = ", ".join(f"`score {k}` float" for k in range(4))
    schema = f"logits array<float>, labels int, {scores}, other string"
    table = spark.createDataFrame(rows, schema).repartition(5, "labels").cache()
    assert_same(tune_dataframe(table, COUNTS))
    if few_in_the_part:
        assert_options_and_columns_count(tune_dataframe, table)
