"""Columns in files, titled with numbers: put in the order of these, whatever the form of the counts."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

from levelhead import counts as class_counts
from levelhead.hosts._columns import ScoreTable

CLASSES = 12
COUNTS = class_counts.long_tail(3000, CLASSES, 60)
LABELS = np.repeat(np.arange(CLASSES), np.maximum(COUNTS // 30, 8))
LOGITS = (
    3 * np.eye(CLASSES)[LABELS]
    + np.random.default_rng(0).normal(size=(len(LABELS), CLASSES))
    + np.log(COUNTS)
)
COUNTS_FORMS = {
    "list": ",".join(map(str, COUNTS)),
    "mapping": "counts.json",
    "none": None,
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("L.npy", LOGITS)
    np.save("Y.npy", LABELS)
    Path("counts.json").write_text(json.dumps({str(k): int(n) for k, n in enumerate(COUNTS)}))
    rng = np.random.default_rng(1)
    head = {"fc.weight": rng.normal(size=(CLASSES, 4)), "fc.bias": np.zeros(CLASSES)}
    save_file({key: value.astype(np.float32) for key, value in head.items()}, "m.safetensors")


def save(form: str, suffix: str, *, first: int = 0, labels: bool = True) -> str:
    """Write the logits with their columns in the order of their titles as text."""
    frame = pd.DataFrame(LOGITS, columns=[form.format(k + first) for k in range(CLASSES)])
    frame = frame[sorted(frame.columns)]
    if labels:
        frame["label"] = LABELS + first
    path = f"t{suffix}"
    if suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    return path


def run(levelhead, *words):
    status, out, err = levelhead(*words, "--json")
    assert status == 0, err
    return json.loads(out)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
@pytest.mark.parametrize("form", ["logit_{}", "class_{}", "{}", "p{}", "v2_class_{}_prob"])
@pytest.mark.parametrize("counts", COUNTS_FORMS)
def test_tables_sorted_as_text_are_read_in_the_order_of_their_numbers(
    folder, levelhead, suffix, form, counts
):
    words = [] if COUNTS_FORMS[counts] is None else ["--counts", COUNTS_FORMS[counts]]
    plain = run(levelhead, "tune", "--logits", "L.npy", "--labels", "Y.npy", *words)
    sorted_as_text = run(levelhead, "tune", "--logits", save(form, suffix), *words)
    assert sorted_as_text["offset"] == plain["offset"]
    assert sorted_as_text["counts"] == plain["counts"]
    assert sorted_as_text["evidence"]["before"] == plain["evidence"]["before"]


def test_each_class_of_a_model_gets_its_own_number(folder, levelhead):
    words = ("--counts", "counts.json", "-o", "t.json")
    run(levelhead, "tune", "--logits", save("logit_{}", ".csv"), *words)
    run(levelhead, "adjust", "m.safetensors", "--tuned", "t.json", "-o", "a.safetensors")
    plain = run(
        levelhead, "tune", "--logits", "L.npy", "--labels", "Y.npy", "--counts", "counts.json"
    )
    bias = load_file("a.safetensors")["fc.bias"]
    np.testing.assert_allclose(bias, plain["offset"], atol=1e-6)


@pytest.mark.parametrize("form", ["logit_{}", "{}"])
@pytest.mark.parametrize("counts", [COUNTS_FORMS["list"], "from1.json"])
def test_numbers_from_1_are_names_of_labels_counts_floors_and_targets(
    folder, levelhead, form, counts
):
    Path("from1.json").write_text(json.dumps({str(k + 1): int(n) for k, n in enumerate(COUNTS)}))
    shares = np.linspace(1, 2, CLASSES) / np.linspace(1, 2, CLASSES).sum()
    Path("target1.json").write_text(json.dumps({str(k + 1): s for k, s in enumerate(shares)}))
    path = save(form, ".parquet", first=1)
    by_names = run(
        levelhead,
        *("tune", "--logits", path, "--counts", counts),
        *("--floor", "1=0.3", "--floor", "12=0.2", "--target", "target1.json"),
    )
    plain = run(
        levelhead,
        *("tune", "--logits", "L.npy", "--labels", "Y.npy", "--counts", COUNTS_FORMS["list"]),
        *("--floor", "0=0.3", "--floor", "11=0.2", "--target", ",".join(map(str, shares))),
    )
    assert by_names["offset"] == plain["offset"]
    assert [floor["index"] for floor in by_names["floors"]] == [0, 11]
    assert by_names["names"] == [str(k + 1) for k in range(CLASSES)]
    run(levelhead, "tune", "--logits", path, "-o", "t.json", "--report", "page.html")
    run(levelhead, "report", "t.json", "-o", "again.html")
    run(levelhead, "report", path, "-o", "other.html")
    assert all("12" in Path(page).read_text() for page in ("page.html", "again.html"))
    frame = pd.read_parquet(path)
    frame["label"] -= 1
    frame.to_parquet("from0.parquet")
    status, _, err = levelhead("tune", "--logits", "from0.parquet", "--counts", counts)
    assert status == 2
    assert "unknown labels 0; the classes are 1, 2, 3" in err


@pytest.mark.parametrize("form", ["logit_{}", "class_{}", "{}", "{}_logit"])
@pytest.mark.parametrize("first", [0, 1])
def test_apply_puts_columns_in_the_same_order(folder, levelhead, form, first):
    if form in ("class_{}", "{}_logit") and first == 1:
        pytest.skip("those are names, which keep their order")
    path = save(form, ".parquet", first=first)
    run(levelhead, "tune", "--logits", path, "-o", "t.json")
    new = save(form, ".parquet", first=first, labels=False)
    run(levelhead, "apply", new, "--tuned", "t.json", "-o", "out.npy")
    plain = run(levelhead, "tune", "--logits", "L.npy", "--labels", "Y.npy")
    np.testing.assert_allclose(np.load("out.npy"), LOGITS + np.array(plain["offset"]), atol=1e-12)


def test_titles_that_are_whole_floats_are_put_in_their_order(folder, levelhead):
    path = save("{}.0", ".parquet")
    plain = run(levelhead, "tune", "--logits", "L.npy", "--labels", "Y.npy")
    assert run(levelhead, "tune", "--logits", path)["offset"] == plain["offset"]


def test_several_labels_per_sample_are_read_in_one_order(folder, levelhead):
    truth = (np.sort(LOGITS, axis=1)[:, [-3]] < LOGITS).astype(int)
    save("logit_{}", ".csv", labels=False)
    frame = pd.DataFrame(truth, columns=[f"label_{k}" for k in range(CLASSES)])
    frame[sorted(frame.columns)].to_csv("y.csv", index=False)
    np.save("truth.npy", truth)
    words = ("tune", "--task", "multilabel", "--logits")
    plain = run(levelhead, *words, "L.npy", "--labels", "truth.npy")
    assert run(levelhead, *words, "t.csv", "--labels", "y.csv")["offset"] == plain["offset"]


def test_tables_on_other_machines_are_read_in_that_order_too():
    titles = [f"logit_{k}" for k in range(CLASSES)]
    frame = pd.DataFrame(LOGITS, columns=titles).assign(label=LABELS)
    logits, labels = ScoreTable(sorted(titles), "label").read(frame)
    np.testing.assert_array_equal(logits, LOGITS)
    np.testing.assert_array_equal(labels, LABELS)
