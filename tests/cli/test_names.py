"""Class names, counts and labels on the command line, in the forms that people have them in."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

NAMES = ["cat", "dog", "owl"]
COUNTS = [400, 100, 20]
LABELS = np.repeat(np.arange(3), 20)
LOGITS = (2 + np.random.default_rng(0).normal(size=(60, 3)) + 2 * np.eye(3)[LABELS]) * [
    1.0,
    0.7,
    0.4,
]
TUNE = ("tune", "--rule", "rescale", "--json")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A model, its logits and its labels."""
    monkeypatch.chdir(tmp_path)
    np.save("L.npy", LOGITS)
    np.save("Y.npy", LABELS)
    Path("names.txt").write_text("\n".join(NAMES))
    Path("words.txt").write_text("\n".join(NAMES[y] for y in LABELS))
    save_file(
        {"fc.weight": np.random.default_rng(1).normal(size=(3, 8)).astype(np.float32)},
        "m.safetensors",
    )
    return tmp_path


def tuned(levelhead, *words):
    status, out, err = levelhead(*TUNE, *words)
    assert status == 0, err
    return json.loads(out), err


@pytest.mark.parametrize("names", ["cat,dog,owl", "names.txt", "config.json"])
def test_names_are_a_list_or_a_file(folder, levelhead, names):
    Path("config.json").write_text(
        json.dumps({"id2label": {str(i): name for i, name in enumerate(NAMES)}})
    )
    words = ("--logits", "L.npy", "--names", names)
    choice, _ = tuned(
        levelhead, *words, "--labels", "words.txt", "--counts", "owl=20,cat=400,dog=100"
    )
    plain, _ = tuned(levelhead, "--logits", "L.npy", "--labels", "Y.npy", "--counts", "400,100,20")
    assert choice["names"] == NAMES
    assert (choice["strength"], choice["counts"]) == (plain["strength"], [400.0, 100.0, 20.0])


@pytest.mark.parametrize("kind", ["npz", "pt"])
def test_names_inside_the_file_of_the_logits_are_found(folder, levelhead, kind):
    everything = {
        "logits": LOGITS,
        "labels": np.array(NAMES)[LABELS],
        "counts": np.array(COUNTS),
        "names": np.array(NAMES),
    }
    if kind == "npz":
        np.savez("all.npz", **everything)
    else:
        torch = pytest.importorskip("torch")
        tensors = {key: torch.tensor(everything[key]) for key in ("logits", "counts")}
        torch.save({**tensors, "labels": torch.tensor(LABELS), "names": NAMES}, "all.pt")
    assert tuned(levelhead, "--logits", f"all.{kind}")[0]["names"] == NAMES


@pytest.mark.parametrize("alone", [True, False])
def test_a_tensor_saved_by_torch_is_read(folder, levelhead, alone):
    torch = pytest.importorskip("torch")
    logits = torch.tensor(LOGITS, requires_grad=True)
    torch.save(logits if alone else {"epoch": 3, "scores": logits}, "L.pt")
    torch.save(torch.tensor(LABELS), "Y.pt")
    choice, _ = tuned(levelhead, "--logits", "L.pt", "--labels", "Y.pt", "--counts", "400,100,20")
    plain, _ = tuned(levelhead, "--logits", "L.npy", "--labels", "Y.npy", "--counts", "400,100,20")
    assert choice["strength"] == plain["strength"]


def test_a_table_with_labels_and_ids_is_enough_and_its_page_can_be_written_again(folder, levelhead):
    frame = pd.DataFrame(LOGITS, columns=NAMES).assign(
        diagnosis=LABELS, image=[f"{i}.png" for i in range(60)]
    )
    frame.to_csv("x.csv", index=False)
    words = (
        "--logits",
        "x.csv",
        "--label-column",
        "diagnosis",
        "--counts",
        "400,100,20",
        "-o",
        "t.json",
    )
    choice, err = tuned(levelhead, *words, "--report", "page.html")
    assert (choice["names"], choice["n"]) == (NAMES, 60)
    assert "x.csv: image is not a class and is ignored; its classes are cat, dog, owl" in err
    sources = json.loads(Path("t.json").read_text())["sources"]
    assert sources["files"] == {"logits": "x.csv", "labels": "x.csv:diagnosis"}
    assert choice["counts"] == COUNTS
    status, _, err = levelhead("report", "t.json", "-o", "again.html")
    assert status == 0, err
    assert all("dog" in Path(page).read_text() for page in ("page.html", "again.html"))


@pytest.mark.parametrize(
    "write",
    [
        lambda: np.save("c.npy", np.repeat(np.arange(3), COUNTS)),
        lambda: np.savez("c.npz", labels=np.repeat(np.arange(3), COUNTS)),
        lambda: pd.Series(np.repeat(NAMES, COUNTS), name="label").to_csv("c.csv", index=False),
        lambda: pd.DataFrame({"file": "a.png", "label": np.repeat(NAMES, COUNTS)}).to_csv(
            "c.tsv", index=False, sep="\t"
        ),
        lambda: pd.DataFrame({"id": np.arange(520), "y": np.repeat(NAMES, COUNTS)}).to_parquet(
            "c.parquet"
        ),
        lambda: Path("c.txt").write_text("\n".join(np.repeat(NAMES, COUNTS))),
        lambda: Path("c.json").write_text(json.dumps(np.repeat(NAMES, COUNTS).tolist())),
        lambda: Path("c.json").write_text(json.dumps({"counts": COUNTS})),
        lambda: Path("c.json").write_text(
            json.dumps({"counts": dict(zip(NAMES, COUNTS, strict=True))})
        ),
        lambda: __import__("torch").save(
            __import__("torch").arange(3).repeat_interleave(__import__("torch").tensor(COUNTS)),
            "c.pt",
        ),
    ],
)
def test_counts_are_numbers_or_labels_in_any_file(folder, levelhead, write):
    write()
    (file,) = folder.glob("c.*")
    words = (
        "--logits",
        "L.npy",
        "--labels",
        "Y.npy",
        "--names",
        "names.txt",
        "--counts",
        file.name,
    )
    assert tuned(levelhead, *words)[0]["counts"] == COUNTS


def test_names_title_the_classes_of_a_model(folder, levelhead):
    for words in (
        ("inspect", "m.safetensors", "--counts", "dog=100,cat=400,owl=20", "--names", "names.txt"),
        ("adjust", "m.safetensors", "-o", "o.safetensors", "--names", "cat,dog,owl")
        + ("--rule", "rescale", "--strength", "0.5", "--counts", "dog=100,cat=400,owl=20"),
    ):
        status, out, err = levelhead(*words)
        assert status == 0, err
        assert "2 owl" in out
    tuned(
        levelhead,
        "--logits",
        "L.npy",
        "--labels",
        "Y.npy",
        "--counts",
        "400,100,20",
        "--names",
        "names.txt",
        "-o",
        "t.json",
    )
    status, out, err = levelhead(
        "adjust", "m.safetensors", "-o", "a.safetensors", "--tuned", "t.json", "--anyway"
    )
    assert status == 0, err
    assert "2 owl" in out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--names", "cat,dog"), "--names: expected 3 class names, one per class, got 2"),
        (
            ("--names", "cat,dog,cat"),
            "--names: two classes are called 'cat'; expected distinct names",
        ),
        (("--names", "none.txt"), "none.txt: no such file; expected class names"),
        (("--names", "cat"), "expected names with commas between them, or a file"),
        (
            ("--labels", "words.txt"),
            "words.txt: labels are names ('cat'), but class names are not known here",
        ),
        (
            ("--labels", "words.txt", "--names", "cat,dog,elk"),
            "words.txt: unknown labels 'owl'; the classes are cat, dog, elk",
        ),
        (("--counts", "400,100"), "--counts: expected 3 counts, one per class, got 2"),
        (
            ("--label-column", "y"),
            "--label-column: expected logits in a table (.csv, .tsv, .parquet), got L.npy",
        ),
    ],
)
def test_mistakes_are_told_in_one_line(folder, levelhead, words, line):
    value_of = {"--logits": "L.npy", "--labels": "Y.npy", "--counts": "400,100,20"}
    value_of |= dict(zip(words[::2], words[1::2], strict=True))
    if "--label-column" in value_of:
        del value_of["--labels"]
    status, out, err = levelhead(*TUNE, *(word for pair in value_of.items() for word in pair))
    assert (status, out) == (2, "")
    assert err.startswith(f"levelhead: {line}"), err
    assert err.count("\n") == 1


def test_many_counts_on_the_command_line_are_no_file_name_that_is_too_long(folder, levelhead):
    labels = np.arange(300) % 150
    logits = np.random.default_rng(0).normal(size=(300, 150)) + 3 * np.eye(150)[labels] + 3
    np.savez("all.npz", logits=logits, labels=labels)
    counts = ",".join(str(2000 - 10 * i) for i in range(150))
    choice, _ = tuned(levelhead, "--logits", "all.npz", "--counts", counts, "-o", "t.json")
    assert len(choice["counts"]) == 150


@pytest.mark.parametrize("text", ["label\n{}\n", "{}\n"])
def test_training_labels_by_name_in_a_csv_are_counted(folder, levelhead, text):
    lines = [name for name, n in zip(NAMES, COUNTS, strict=True) for _ in range(n)]
    Path("train.csv").write_text(text.format("\n".join(lines)))
    words = ("--logits", "L.npy", "--labels", "Y.npy", "--counts", "train.csv")
    choice, _ = tuned(levelhead, *words, "--names", "names.txt")
    assert choice["counts"] == COUNTS
    pd.DataFrame(LOGITS, columns=NAMES).to_csv("L.csv", index=False)
    assert tuned(levelhead, *words[2:], "--logits", "L.csv")[0]["counts"] == COUNTS
    status, _, err = levelhead(*TUNE, *words)
    assert (status, err.count("\n")) == (2, 1)
    assert "train.csv: training labels are names ('cat'), but class names are not known here" in err
    assert "pass --names to list the classes in the order of the logits' columns" in err
    with_names = ("--names", "names.txt", "--rule", "rescale", "--strength", "0.3", "--json")
    words = ("--counts", "train.csv", "-o", "rs.safetensors")
    status, out, err = levelhead("adjust", "m.safetensors", *words, *with_names)
    assert status == 0, err
    assert json.loads(out)["counts"] == COUNTS
