"""Mistakes on the command line: one line in the words of the command, with what to do, and the exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.main import get_command

from levelhead import cli
from levelhead.cli.errors import in_cli_words, options_of
from levelhead.support.errors import Advice, LevelheadError

COUNTS = [400, 100, 25, 4]
LABELS = np.repeat(np.arange(4), [12, 8, 6, 4])
LOGITS = 5 + 2 * np.eye(4)[LABELS] + np.random.default_rng(0).normal(size=(30, 4))
SHARES = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)

NOT_FINITE = "the logits hold NaN or infinite values, first in row 7; leave such rows out, or compute them in float32"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A model with its logits, and files that do not hold what their names say."""
    monkeypatch.chdir(tmp_path)
    weight = np.random.default_rng(1).normal(size=(4, 8)).astype(np.float32)
    save_file({"fc.weight": weight}, "m.safetensors")
    save_file({"fc.weight": np.where(np.arange(4)[:, None] == 1, 0, weight)}, "zero.safetensors")
    save_file({"classifier.weight": weight, "other.weight": weight + 1}, "two.safetensors")
    arrays = {
        "L": LOGITS,
        "Y": LABELS,
        "P": SHARES,
        "hole": np.where(np.isin(LOGITS, LOGITS[7, 1]), np.nan, LOGITS),
        "thin": LOGITS[:, :1],
        "short": LABELS[:5],
        "half": LABELS + 0.5,
        "words": LOGITS.astype(str),
    }
    for name, values in arrays.items():
        np.save(f"{name}.npy", values)
    np.save("ragged.npy", np.array([[1], [2, 3]], dtype=object), allow_pickle=True)
    texts = {
        "C.json": COUNTS,
        "zero.json": [400, 0, 25, 4],
        "named.json": {"cat": 1, "dog": 2, "elk": 3, "fox": 4},
        "word.json": [1, "two", 3, 4],
        "old.json": {"gamma": 1, "rule": "shift", "chosen_on": "held-out"},
    }
    for name, value in texts.items():
        (tmp_path / name).write_text(json.dumps(value))
    (tmp_path / "pickle.npy").write_text("hello")
    (tmp_path / "word.txt").write_text("1 two 3")
    (tmp_path / "latin.csv").write_bytes(b"caf\xe9,1\n")
    (tmp_path / "none.json").touch()
    (tmp_path / "d.npy").mkdir()
    os.mkfifo("pipe.json")
    return tmp_path


TUNE = ["tune", "--logits", "L.npy", "--labels", "Y.npy", "--counts", "C.json"]
BLIND = ["tune", "--logits", "L.npy", "--counts", "C.json"]
ADJUST = ["adjust", "m.safetensors", "-o", "o.safetensors"]
RESCALE = [*ADJUST, "--counts", "C.json", "--rule", "rescale", "--strength", "1"]
REPORT = ["report", "L.npy", "-o", "p.html", "--counts", "C.json"]
LOOKS = "expected logits, got what looks like probabilities: rows in [0, 1] that sum to 1; save the values before the"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        # the choices of an option are listed
        (
            [*TUNE, "--kind", "probs"],
            "invalid value for '--kind': 'probs' is not one of 'logits', 'probabilities', "
            "'log-probabilities' (levelhead tune -h explains)",
        ),
        (
            [*RESCALE, "--rule", "magic"],
            "--rule: expected 'offsets', 'shift', 'rescale', 'tau', 'scales' or 'vector', got 'magic'",
        ),
        # a parameter of the library is an option here
        (
            [*TUNE, "--logits", "P.npy", "--kind", "probabilities", "--rule", "rescale"],
            "--rule: 'rescale' multiplies logits, which has no meaning for probabilities; use 'offsets'",
        ),
        (
            [*RESCALE, "--rule", "shift"],
            "m.safetensors: fc has no bias to add to, and a safetensors file cannot hold one that the model does "
            "not expect; use the rule scales or rescale; pass --features (what the head takes, of held-out samples) to "
            "put it into the weights",
        ),
        (
            ["adjust", "old.json", "--tuned", "m.safetensors", "-o", "o.safetensors"],
            "old.json is not a model; give the model first: levelhead adjust m.safetensors --tuned old.json",
        ),
        (
            [*ADJUST, "--tuned", "old.json"],
            "old.json: not a file that `levelhead tune` wrote (an older levelhead wrote it, before its first release; "
            "tune again)",
        ),
        # advice is given where the command has the option
        (
            [*TUNE, "--logits", "P.npy"],
            f"{LOOKS} softmax; pass --kind probabilities to adjust their logarithms",
        ),
        ([*RESCALE, "--logits", "P.npy"], f"{LOOKS} softmax"),
        (["report", "P.npy", "-o", "p.html", "--counts", "C.json"], f"{LOOKS} softmax"),
        (
            [*RESCALE, "--counts", "zero.json"],
            "zero.json: class 1 has no samples; leave it out, or give it the largest count, which leaves it as it is",
        ),
        (
            [*TUNE, "--counts", "zero.json"],
            "zero.json: class 1 has no samples; leave it out, or give it the largest count, which leaves it as it is",
        ),
        (
            [*TUNE, "--counts", "named.json"],
            "named.json: got the class name 'cat', but class names are not known here, so "
            "counts must be in class order; pass --names to say which class is which",
        ),
        (
            [*TUNE, "--rule", "tau"],
            "--rule: 'tau' needs the weight norms of the head; pass --norms with them",
        ),
        (
            ["adjust", "zero.safetensors", *RESCALE[2:], "--rule", "tau"],
            "the weight vector of class 1 is zero and has no direction; rescale and shift do not need one",
        ),
        # an output is called by what it is
        ([*TUNE, "-o", "t.npy"], "t.npy: expected a name that ends in .json: the choice is JSON"),
        ([*TUNE, "-o", "choice"], "choice: expected a name that ends in .json: the choice is JSON"),
        # an option that would not be used is refused
        ([*BLIND, "--metric", "macro_f1"], "--metric: this needs --labels"),
        (
            [*BLIND, "--unlabelled", "L.npy"],
            "--unlabelled: --logits are the unlabelled ones if --labels is left out",
        ),
        # the file is named, and its content described without words of numpy or json
        (
            [*TUNE, "--labels", "short.npy"],
            "short.npy: expected 30 labels, one per row of L.npy, got 5",
        ),
        (
            [*TUNE, "--labels", "half.npy"],
            "half.npy: expected integer labels, got float64 (0.5 at position 0)",
        ),
        (
            [*TUNE, "--logits", "thin.npy"],
            "thin.npy: expected logits [N, K] of at least 1 sample and 2 classes, got shape [30, 1]; for one "
            "score z per "
            "sample, stack (0, z), of a probability p (1 - p, p), and use a rule that adds, such as offsets",
        ),
        (
            [*TUNE, "--logits", "words.npy"],
            "words.npy: expected logits as floating-point numbers, got text",
        ),
        ([*TUNE, "--logits", "hole.npy"], NOT_FINITE),
        (
            [*TUNE, "--unlabelled", "hole.npy", "--target", "estimate"],
            f"--unlabelled: {NOT_FINITE}",
        ),
        (
            [*TUNE, "--logits", "ragged.npy"],
            "ragged.npy: the file holds Python objects, perhaps lists of different lengths; save plain numbers",
        ),
        ([*TUNE, "--logits", "pickle.npy"], "pickle.npy: not an .npy file"),
        (
            [*TUNE, "--logits", "d.npy"],
            "--labels: each file of a folder holds its own labels; leave it out",
        ),
        ([*TUNE, "--counts", "word.txt"], "word.txt: expected a number, got 'two'"),
        (
            [*TUNE, "--counts", "word.json"],
            "word.json: expected counts as numbers, got 'two' for class 1",
        ),
        ([*TUNE, "--counts", "latin.csv"], "latin.csv: not valid UTF-8; save the file as UTF-8"),
        ([*TUNE, "--counts", "none.json"], "none.json: the file is empty"),
        ([*TUNE, "--target", "none.json"], "none.json: the file is empty"),
        (
            [*TUNE, "--target", "nan,1,1,1"],
            "--target: expected finite numbers, got nan for class 0",
        ),
        (
            [*ADJUST, "--tuned", "C.json"],
            "C.json: not a file that `levelhead tune` wrote (not a JSON object)",
        ),
        (
            [*ADJUST, "--tuned", "zero.safetensors"],
            "zero.safetensors: not a file that `levelhead tune` wrote (not valid UTF-8; save the file as UTF-8)",
        ),
        (
            [*ADJUST, "--tuned", "word.txt"],
            "word.txt: not a file that `levelhead tune` wrote (not JSON (Extra data: line 1 column 3 (char 2)))",
        ),
        (
            ["report", "named.json", "-o", "p.html"],
            "named.json: not a file that `levelhead tune` wrote (expected the format 'levelhead tuned 1')",
        ),
        (
            [*RESCALE[:-1], "1000"],
            "m.safetensors: the scaled head (in float32) has NaN or infinite weight values in class 1; use a strength "
            "nearer to 0",
        ),
        # a pipe is not replaced
        (
            [*TUNE, "-o", "pipe.json", "--force"],
            "pipe.json: a device or a pipe; expected the name of a file to write",
        ),
        # typing errors
        (["tune"], "missing option '--logits' (levelhead tune -h explains)"),
        (["adjust"], "missing argument 'MODEL' (levelhead adjust -h explains)"),
        (["nope"], "no such command 'nope' (levelhead -h explains)"),
        ([*TUNE, "--xyzzy"], "no such option: --xyzzy (levelhead tune -h explains)"),
    ],
)
def test_a_mistake_is_reported_in_one_line_that_says_what_to_do(folder, levelhead, words, line):
    assert levelhead(*words, "--json") == (2, "", f"levelhead: {line}\n")


COUNTED = {
    "tune": TUNE,
    "compare": ["compare", *TUNE[1:]],
    "report": REPORT,
    "adjust": RESCALE,
    "inspect": ["inspect", "m.safetensors"],
}


@pytest.mark.parametrize("command", COUNTED)
@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        ("4,3,2", "--counts: expected 4 counts, one per class, got 3"),
        ("4,3,2,-1", "--counts: the count of class 3 is negative (-1)"),
        ("4,3,2,0", "--counts: class 3 has no samples"),
        (
            "4,3,x,1",
            "--counts: expected numbers with commas between them or a file, such as 4000,2000,500 or "
            "counts.json, got '4,3,x,1'",
        ),
        (
            "4000",
            "--counts: expected numbers with commas between them or a file, such as 4000,2000,500 or "
            "counts.json, got '4000'",
        ),
        ("zero.json", "zero.json: class 1 has no samples"),
    ],
)
def test_errors_about_counts_name_the_option_or_the_file(folder, levelhead, command, typed, reason):
    code, out, err = levelhead(*COUNTED[command], "--counts", typed)
    assert (code, out) == (2, "")
    assert err.startswith(f"levelhead: {reason}")
    assert err.count("\n") == 1
    assert not (folder / "o.safetensors").exists()


def test_a_file_called_like_an_argument_keeps_its_name(folder, levelhead):
    for name in ("rule=tau.npy", "kind=.npy", "a(rule=tau).npy"):
        error = levelhead("tune", "--logits", name, "--counts", "C.json")[2]
        assert error == f"levelhead: {name}: no such file; expected logits\n"


def options(command: str) -> dict[str, str]:
    return options_of(get_command(cli.app).commands[command])  # type: ignore[attr-defined]


def test_a_parameter_is_named_as_the_option_of_the_command():
    assert (
        in_cli_words(LevelheadError("expected 2", parameter="norms"), options("tune"))
        == "--norms: expected 2"
    )
    assert (
        in_cli_words(LevelheadError("expected 2", parameter="norms"), options("undo"))
        == "norms: expected 2"
    )
    for parameter, option in {
        "rng": "--seed",
        "chosen_on": "--chosen-on",
        "out": "--out",
    }.items():
        assert (
            in_cli_words(LevelheadError("no", parameter=parameter), options("tune"))
            == f"{option}: no"
        )


def test_advice_is_given_only_where_the_command_has_the_option():
    error = LevelheadError("no bias", parameter="rule", advice=Advice("rule", "rescale", "instead"))
    assert in_cli_words(error, options("adjust")) == "--rule: no bias; pass --rule rescale instead"
    assert in_cli_words(error, options("undo")) == "rule: no bias"
    unknown = LevelheadError("too short", advice=Advice("norms", None, "as the head has them"))
    assert in_cli_words(unknown, options("tune")) == "too short; pass --norms as the head has them"
    assert in_cli_words(unknown, {}) == "too short"


def test_a_message_of_several_lines_becomes_one():
    assert (
        in_cli_words(LevelheadError("expected one\n    line", parameter="text"), {})
        == "text: expected one line"
    )


def test_no_command_prints_the_help(levelhead):
    status, out, err = levelhead()
    assert (status, out) == (2, "")
    assert err == levelhead("--help")[1]


def test_an_interrupted_command_ends_with_130(folder, levelhead, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("levelhead.files.inspect.inspection_text", interrupted)
    assert levelhead("inspect", "m.safetensors") == (130, "", "")


def test_a_bug_of_ours_shows_its_traceback(folder, monkeypatch):
    monkeypatch.setattr("levelhead.files.inspect.inspection_text", lambda _: {}["key"])
    monkeypatch.setattr(sys, "argv", ["levelhead", "inspect", "m.safetensors"])
    with pytest.raises(KeyError):
        cli.main()
    monkeypatch.setenv("LEVELHEAD_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["levelhead", "inspect", "none.json"])
    with pytest.raises(ValueError, match=r"none\.json: "):
        cli.main()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_and_a_closed_pipe_show_no_traceback(folder, monkeypatch, unbuffered):
    """Whether output goes out at once, or only at the end, when Python would complain by itself."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    command = [sys.executable, "-m", "levelhead", "inspect", "m.safetensors", "--json"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (2, "levelhead: no space left on device\n")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        ended = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "")


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_letters_that_the_output_does_not_have_are_written_out(folder, monkeypatch, encoding):
    """A pipe has another encoding than UTF-8 on Windows: no letter of a name, or of a bar, is an error there."""
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    command = [sys.executable, "-m", "levelhead", "inspect", "m.safetensors"]
    command += ["--names", "cat,\N{GREEK SMALL LETTER OMEGA},elk,fox"]
    ended = subprocess.run(command, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"1 \\u03c9" in ended.stdout or b"1 \xcf\x89" in ended.stdout


def test_a_command_without_any_output_does_its_work(folder, tmp_path):
    code = "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    words = [*TUNE, "-o", tmp_path / "new.json"]
    command = [sys.executable, "-c", code, "-m", "levelhead", *words]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / "new.json").is_file()


def test_too_little_memory_is_said_in_one_line(tmp_path):
    code = """
        import resource, sys
        from levelhead import cli
        import levelhead.io.arrays, levelhead.core.tune  # what is imported before does not count
        pages = int(open("/proc/self/statm").read().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (100 << 20), -1))
        try:
            bytearray(1 << 30)
        except MemoryError:
            cli.main()
        else:
            print("no limit")
    """
    np.savez_compressed(
        tmp_path / "L.npz", logits=np.zeros((400_000, 50))
    )  # 160 MB, which compress well
    words = ["tune", "--logits", "L.npz", "--labels", "L.npz", "--counts", "1,2"]
    command = [sys.executable, "-c", textwrap.dedent(code), *words]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if "no limit" in ended.stdout:
        pytest.skip("this system lets no process limit its memory")
    assert ended.returncode == 2, ended.stderr
    assert "memory" in ended.stderr
    assert ended.stderr.count("\n") == 1, ended.stderr


@pytest.mark.parametrize(
    ("words", "example"),
    [
        (["inspect", "two.safetensors", "--head"], "classifier"),
        ([*TUNE, "--report"], "page.html"),
        (["tune", "--logits", "three.npz", "--target"], "0.5,0.3,0.2"),
    ],
)
def test_the_examples_of_the_help_run(folder, levelhead, words, example):
    np.savez("three.npz", logits=LOGITS[:, :3], counts=COUNTS[:3])
    command = get_command(cli.app).commands[words[0]]  # type: ignore[attr-defined]
    helps = [str(getattr(each, "help", "")) for each in command.params]
    assert any(example in text for text in helps)
    assert levelhead(*words, example)[0] == 0


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="it needs a folder that takes no file")
@pytest.mark.parametrize("last", ["--report /proc/page.html", "--plot /proc/picture.png"])
def test_nothing_is_written_if_one_of_several_outputs_cannot_be(folder, levelhead, last):
    status, out, err = levelhead(*TUNE, "-o", "new.json", *last.split())
    assert (status, out) == (2, "")
    assert err.startswith(f"levelhead: {last.split()[1]}: ")
    assert not os.path.exists("new.json")


@pytest.mark.parametrize(
    "words",
    [
        [*TUNE, "--seed", "x"],
        [*TUNE, "--seed", "-1"],
        ["adjust", "m.safetensors", "--strength", "x", "-o", "o"],
    ],
)
def test_a_wrong_number_is_reported_in_our_words(folder, levelhead, words):
    status, _, err = levelhead(*words)
    assert status == 2
    assert err.count("\n") == 1
    assert "levelhead: invalid value for '--s" in err
    assert "Input should" not in err
