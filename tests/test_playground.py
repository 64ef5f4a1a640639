"""The playground of the docs in headless chromium: its fits and paths are those of `lh.tune` and `lh.gamma_path`.

It is opened from its file, offline. Without chromium these tests are skipped.
"""

import base64
import json
import re
import shlex
import shutil
import subprocess
import time
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.lib import format as npy
from typer.testing import CliRunner

import levelhead as lh
from levelhead import cli
from levelhead.core import evidence, judge, metric_offsets, per_class, samples
from levelhead.io.samples_file import read as read_files
from levelhead.support.types import Kind
from levelhead.support.warnings import quiet
from levelhead_lab.paper.record import shipped_snapshots

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
PAGE = Path(__file__).parents[1] / "docs" / "playground.html"
RANGES = {"rescale": (0.0, 2.0), "shift": (0.0, 4.0)}
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as library:
        started = library.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def tab(browser):
    """One tab for all tests: a process of its own for each would take three times as long to show the page."""
    return browser.new_page(offline=True)


@pytest.fixture
def opened(tab):
    """Open the page; in the end it must have logged nothing, thrown nothing and requested nothing but itself."""
    complaints = []
    listeners = {
        "console": lambda message: complaints.append(message.text),
        "pageerror": lambda error: complaints.append(str(error)),
        "request": lambda request: (
            None if request.url == PAGE.as_uri() else complaints.append(request.url)
        ),
    }

    def open_(width: int = 1200, theme: str = "light"):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.emulate_media(color_scheme=theme)
        tab.goto(PAGE.as_uri())
        return tab

    for event, listener in listeners.items():
        tab.on(event, listener)
    yield open_
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)
    tab.goto("about:blank")
    assert complaints == []


def wait(page) -> None:
    page.get_by_text("all fits and paths in").wait_for(timeout=60_000)


def wait_until(page, holds: str) -> None:
    """Ask from outside: the page forbids what `wait_for_function` evaluates where its first look fails."""
    deadline = time.monotonic() + 30
    while not page.evaluate(holds):
        assert time.monotonic() < deadline, f"{holds}: not so within half a minute"
        page.wait_for_timeout(20)


def drop(page, folder: Path, counts, **arrays):
    """Give the page files of arrays, and wait until it has worked."""
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)
    (folder / "counts.json").write_text(json.dumps(np.asarray(counts).tolist()))
    page.set_input_files(
        "#files", [*(folder / f"{name}.npy" for name in arrays), folder / "counts.json"]
    )
    wait(page)


def found(page, rule: str) -> dict:
    """Return what the page computed for a rule of one strength."""
    kept = "lo: Array.from(lo, String), hi: Array.from(hi, String), ...curve, chosen, gain, verdict"
    take = "const {lo, hi, curve, chosen, gain, verdict} = window.result.paths[rule]"
    return page.evaluate(f"rule => {{ {take}; return {{ {kept} }}; }}", rule)


def compare(
    page, logits, labels, counts, kind: Kind = "logits", rules=("rescale", "shift")
) -> None:
    for rule in rules:
        path = lh.gamma_path(logits, labels, counts, rule=rule, range=RANGES[rule], kind=kind)
        here = found(page, rule)
        assert len(here["gammas"]) == len(path.gammas)
        np.testing.assert_allclose(here["gammas"], path.gammas, rtol=1e-13)
        # One sample would be 1 / N.
        np.testing.assert_allclose(here["error"], path.error, atol=1e-12)
        np.testing.assert_allclose(here["balanced"], path.balanced_error, atol=1e-11)
        assert here["chosen"] == pytest.approx(path.best().gamma, abs=1e-12)
        lo, hi = (
            np.array([float(end.replace("Infinity", "inf")) for end in here[name]])
            for name in ("lo", "hi")
        )
        for gamma in (0.0, 0.3, 1.0, path.best().gamma):  # each sample
            right = (lo <= gamma) & (gamma <= hi)
            np.testing.assert_array_equal(right, path.right(gamma), err_msg=rule)


def tune_on_its_folds(page, logits, labels, counts, **options) -> lh.Tuned:
    """Tune on the folds that the page has dealt, so that both judge the same fits."""
    fold = np.array(page.evaluate("Array.from(deal(window.result.data))"), np.uint8)
    with pytest.MonkeyPatch.context() as patch, quiet():
        patch.setattr(samples, "deal", lambda labels, rng: fold)
        return lh.tune(logits, labels, counts, **options)


def compare_offsets(
    page, logits, labels, counts, kind: Kind = "logits", close=2e-3, judged=1e-9
) -> None:
    """Compare what the page adds to each class, and what that is worth, with `lh.tune`."""
    tuned = tune_on_its_folds(page, logits, labels, counts, kind=kind)
    here = page.evaluate("window.result.paths.offsets")
    np.testing.assert_allclose(here["offsets"], tuned.adjustment.offset, atol=close)
    for when, expected, atol in (
        ("before", tuned.evidence.before, 1e-12),
        ("after", tuned.evidence.after, judged),
    ):
        shown = here[when]
        for name in ("recall", "precision", "share"):
            values = np.array([np.nan if x is None else x for x in shown[name]], float)
            np.testing.assert_allclose(values, getattr(expected, name), atol=10 * atol)
        assert shown["accuracy"] == pytest.approx(float(expected.accuracy), abs=atol)
        assert shown["balanced"] == pytest.approx(float(expected.balanced_accuracy), abs=atol)
        assert shown["f1"] == pytest.approx(float(expected.macro_f1), abs=atol)
    assert here["gain"] == pytest.approx(tuned.gain, abs=judged)
    assert here["interval"] == pytest.approx(tuned.gain_interval, abs=judged)
    assert here["probability"] == pytest.approx(tuned.evidence.probability, abs=1e-6 + judged)
    assert here["verdict"] == tuned.verdict


def check_code(page) -> None:
    """Run the code and the first command that the page shows, in the folder of the files."""
    for name, rule in (("RS", "rescale"), ("Shift", "shift"), ("Offsets", "offsets")):
        page.get_by_role("button", name=name, exact=True).click()
        namespace: dict = {}
        exec(page.inner_text("#python"), namespace)
        assert namespace["tuned"].rule == rule
        assert namespace["tuned"].worthwhile
        if rule == "offsets":
            offsets = page.evaluate("window.result.paths.offsets.offsets")
            assert namespace["tuned"].adjustment.offset == pytest.approx(offsets, abs=2e-3)
        else:
            chosen = found(page, rule)["chosen"]
            assert namespace["path"].best().gamma == pytest.approx(chosen, abs=1e-12)
    shell = page.inner_text("#shell").replace("\\\n", "")
    command = shell.partition("levelhead adjust")[0].splitlines()[-1]
    done = CliRunner().invoke(cli.app, [*shlex.split(command)[1:], "--force"])
    assert done.exit_code == 0, done.output
    assert Path("page.html").is_file()


def long_tail(n: int, classes: int, seed: int = 0, dtype: type = np.float32):
    """Logits of a model that knows its frequent classes better, some of them negative, labels and counts."""
    rng = np.random.default_rng(seed)
    counts = lh.counts.long_tail(5000, classes, 100)
    labels = np.concatenate([np.arange(classes), rng.integers(classes, size=n - classes)])
    logits = 1 + rng.normal(size=(n, classes)) + 2.5 * np.eye(classes)[labels]
    return (logits * (counts / 5000) ** 0.15).astype(dtype), labels, counts


@slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_paths_and_errors_are_those_of_gamma_path_to_the_last_sample(opened, tmp_path, dtype):
    logits, labels, counts = long_tail(3000, 12, dtype=dtype)
    page = opened()
    drop(page, tmp_path, counts, logits=logits, labels=labels)
    compare(page, logits, labels, counts)
    compare_offsets(page, logits, labels, counts)
    for rule in ("rescale", "shift"):
        tuned = tune_on_its_folds(page, logits, labels, counts, rule=rule)
        here = found(page, rule)
        assert here["chosen"] == pytest.approx(tuned.strength, abs=1e-12)
        assert here["balanced"][0] == pytest.approx(tuned.evidence.value_before, abs=1e-12)
        assert here["verdict"] == tuned.verdict == "better"
        gain = gain_of_exact_strengths(page, logits, labels, counts, rule)
        assert here["gain"] == pytest.approx(gain, abs=1e-12)
        # `tune` looks at 1,024 strengths for each fold, the page at all: some samples differ.
        assert here["gain"] == pytest.approx(tuned.gain, abs=0.005)


def gain_of_exact_strengths(page, logits, labels, counts, rule: str) -> float:
    """Return what the best strength of all other folds gains on each fold that the page has dealt."""
    fold = np.array(page.evaluate("Array.from(deal(window.result.data))"))
    whole = lh.gamma_path(logits, labels, counts, rule=rule, range=RANGES[rule])
    right = np.zeros(len(labels), bool)
    for out in np.unique(fold):
        kept = fold != out
        path = lh.gamma_path(logits[kept], labels[kept], counts, rule=rule, range=RANGES[rule])
        right[~kept] = whole.right(path.best().gamma)[~kept]
    sizes = np.bincount(labels)
    plain, adjusted = (np.bincount(labels, r) / sizes for r in (whole.right(0.0), right))
    return float((adjusted - plain).mean())


@slow
def test_without_counts_those_of_the_labels_stand_in(opened, tmp_path):
    rng = np.random.default_rng(4)
    labels = np.repeat(np.arange(4), [400, 150, 60, 25])
    logits = rng.normal(size=(len(labels), 4)) + 2 * np.eye(4)[labels]
    logits += np.log([400, 150, 60, 25])
    np.save(tmp_path / "logits.npy", logits)
    np.save(tmp_path / "labels.npy", labels)
    page = opened()
    page.set_input_files("#files", [tmp_path / "logits.npy", tmp_path / "labels.npy"])
    wait(page)
    compare_offsets(page, logits, labels, None)
    assert "--counts" not in page.inner_text("#shell")
    assert page.inner_text("#counted") == "samples here"


@slow
def test_votes_of_an_ensemble_are_smoothed(opened, tmp_path):
    rng = np.random.default_rng(5)
    labels = rng.integers(3, size=600)
    scores = np.exp(1.5 * np.eye(3)[labels] + rng.normal(size=(600, 3)) + [1.5, 0, -1])
    votes = np.floor(10 * scores / scores.sum(axis=1, keepdims=True))
    votes[:, 0] += 10 - votes.sum(axis=1)
    page = opened()
    drop(page, tmp_path, [900, 300, 90], probabilities=votes / 10, labels=labels)
    compare_offsets(page, votes / 10, labels, [900, 300, 90], "probabilities")


@slow
def test_rounded_probabilities_are_taken_for_such(opened, tmp_path):
    logits, labels, counts = long_tail(300, 5)
    shares = np.exp(lh.measure.log_softmax(logits)).round(2)
    page = opened()
    drop(page, tmp_path, counts, probabilities=shares, labels=labels)
    compare_offsets(page, shares, labels, counts, "probabilities")


@slow
def test_scores_of_any_size_get_offsets_in_their_unit(opened, tmp_path):
    logits, labels, counts = long_tail(300, 5)
    for unit in (0.001, 1000.0):
        page = opened()
        drop(page, tmp_path, counts, logits=unit * logits, labels=labels)
        compare_offsets(page, unit * logits, labels, counts, close=2e-3 * unit)


@slow
def test_small_probabilities_of_a_sure_model_are_no_votes_of_zero(opened, tmp_path):
    logits, labels, counts = long_tail(800, 5, dtype=np.float64)
    shares = np.exp(lh.measure.log_softmax(40 * logits))
    assert 0 < shares.min() < 1e-45
    page = opened()
    drop(page, tmp_path, counts, probabilities=shares, labels=labels)
    compare_offsets(page, shares, labels, counts, "probabilities")


def test_the_constants_are_those_of_the_fit():
    text = PAGE.read_text(encoding="utf-8")
    for name, value in (
        ("HELD", per_class.HELD),
        ("CALM", per_class.CALM),
        ("BELIEF", metric_offsets.BELIEF),
        ("PULL", metric_offsets.PULL),
        ("UNSEEN", judge._UNSEEN),
        ("LIKELY", evidence.LIKELY),
        ("FOLDS", samples.FOLDS),
    ):
        written = re.search(rf"\b{name} = ([\d.]+)", text)
        assert written is not None, name
        assert float(written[1]) == value, name
    np.testing.assert_array_equal(metric_offsets.STRENGTHS, np.arange(65) / 32)


@slow
def test_ties_are_broken_as_gamma_path_breaks_them(opened, tmp_path):
    rng, counts = np.random.default_rng(1), [625, 125, 125, 25, 5, 1]
    labels = rng.integers(6, size=2000)
    logits = rng.integers(-3, 6, size=(2000, 6)).astype(
        float
    )  # zeros, equal and negative ones; ratios of 5
    logits[:400] = 5.0 ** rng.integers(-2, 3, size=(400, 6))  # which cross at round strengths
    page = opened()
    drop(page, tmp_path, counts, logits=logits, labels=labels)
    compare(page, logits, labels, counts)


@slow
def test_probabilities_are_shifted_and_not_scaled(opened, tmp_path):
    logits, labels, counts = long_tail(800, 5, dtype=np.float64)
    shares = np.exp(lh.measure.log_softmax(logits))
    page = opened()
    drop(page, tmp_path, counts, probabilities=np.asfortranarray(shares), labels=labels)
    assert page.evaluate("Object.keys(window.result.paths)") == ["offsets", "shift"]
    compare(page, shares, labels, counts, "probabilities", ["shift"])
    compare_offsets(page, shares, labels, counts, "probabilities")


@slow
def test_csv_and_npz_are_read_as_npy_is(opened, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    logits, labels, counts = long_tail(300, 4, dtype=np.float64)
    page = opened()
    rows = "\n".join(
        ",".join([*map(repr, row.tolist()), str(y)]) for row, y in zip(logits, labels, strict=True)
    )
    (tmp_path / "held-out.csv").write_text("cat,dog,owl,yak,label\n" + rows + "\n")
    page.fill("#counts", ", ".join(map(str, counts)))
    page.set_input_files("#files", tmp_path / "held-out.csv")
    wait(page)
    compare(page, logits, labels, counts)
    check_code(page)
    assert page.locator("#classes th").all_inner_texts() == [
        "yak",
        "owl",
        "dog",
        "cat",
    ]  # rare ones first
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "held-out.npz", logits=logits, labels=labels, counts=counts)
        page = opened()
        page.set_input_files("#files", tmp_path / "held-out.npz")
        wait(page)
        compare(page, logits, labels, counts)
    np.savetxt("logits.csv", logits, delimiter=";", fmt="%.17g")
    np.savetxt("labels.csv", labels, fmt="%d")
    page = opened()
    page.set_input_files("#files", [tmp_path / "logits.csv", tmp_path / "labels.csv"])
    page.fill("#counts", ", ".join(map(str, counts)))
    page.locator("#counts").blur()
    wait(page)
    compare(page, logits, labels, counts)
    check_code(page)


@slow
def test_the_example_is_the_network_of_the_package_and_its_code_runs(
    opened, tmp_path, monkeypatch, capsys
):
    network = shipped_snapshots()["baseline"]
    logits, labels = (
        network.logits("test")[:1000].astype(np.float16).astype(np.float32),
        network.labels["test"][:1000],
    )
    page = opened()
    page.click("#example")
    wait(page)
    compare(page, logits, labels, network.counts)
    compare_offsets(page, logits, labels, network.counts)
    assert page.inner_text("#verdict").startswith("Better (chance of a gain: ")
    assert page.locator("#classes th").first.inner_text() == "truck"
    monkeypatch.chdir(tmp_path)
    np.save("logits.npy", logits)
    np.save("labels.npy", labels)
    check_code(page)
    assert page.inner_text("#shell").startswith(
        "levelhead tune --logits logits.npy \\\n    --labels labels.npy \\\n    --counts 5000,2997,"
    )


def give(page, *files: Path) -> dict:
    """Give the page files, wait until it has worked, and return what it takes them for."""
    page.set_input_files("#files", list(files))
    wait(page)
    taken = "({logits: Array.from(logits), labels: Array.from(labels), counts, names, counted})"
    return page.evaluate(
        f"(({{logits, labels, counts, names, counted}}) => {taken})(window.result.data)"
    )


def compare_with_files(page, folder: Path, logits, labels=None, counts=None) -> None:
    """Compare what the page takes files for with what the command line takes them for."""
    taken = give(page, *(folder / name for name in (logits, labels, counts) if name is not None))
    expected = read_files(
        folder / logits,
        None if labels is None else folder / labels,
        None if counts is None else folder / counts,
    )
    np.testing.assert_array_equal(np.array(taken["logits"]), expected.logits.ravel())
    np.testing.assert_array_equal(taken["labels"], expected.labels)
    assert taken["names"] == expected.names
    assert taken["counted"] == (expected.counts is None)
    if expected.counts is not None:
        assert taken["counts"] == expected.counts.tolist()


SORTED = {
    "logit_{}": 0,
    "class_{}": 0,
    "{}": 0,
    "p{}": 0,
    "v2_class_{}_prob": 0,
    "logit_{} from 1": 1,
    "{} from 1": 1,
    "type{} from 1": 1,  # names, which keep their order
}


@slow
@pytest.mark.parametrize("form", SORTED)
@pytest.mark.parametrize("counts", [None, "counts.json", "counts.csv"])
def test_columns_sorted_as_text_are_put_in_the_order_of_their_numbers(
    opened, tmp_path, form, counts
):
    logits, labels, n = long_tail(200, 12, dtype=np.float64)
    first, word = SORTED[form], form.partition(" ")[0]
    keys = [k + first if not word.startswith("type") else f"type{k + 1}" for k in range(12)]
    frame = pd.DataFrame(logits, columns=[word.format(k + first) for k in range(12)])
    frame = frame[sorted(frame.columns)]
    frame["label"] = labels + first if not word.startswith("type") else labels
    frame.insert(0, "id", np.arange(len(frame)) + 100)
    frame.to_csv(tmp_path / "x.csv", index=False)
    by_class = dict(zip(map(str, keys), n.tolist(), strict=True))
    (tmp_path / "counts.json").write_text(json.dumps(by_class))
    lines = [f"{key},{value}" for key, value in reversed(by_class.items())]
    (tmp_path / "counts.csv").write_text("\n".join(["class,n", *lines]))
    compare_with_files(opened(), tmp_path, "x.csv", None, counts)


@slow
def test_labels_and_counts_go_by_name(opened, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    logits, labels, counts = long_tail(400, 3, dtype=np.float64)
    names = np.array(["cat, wild", "dog", "owl"])
    frame = pd.DataFrame(logits, columns=names).assign(file="a.png")
    frame.to_csv("plain.csv", index=False)
    frame.assign(y=names[labels]).to_csv("table.csv", index=False)
    for title in ("label", "0"):
        pd.Series(names[labels], name=title).to_csv(f"labels_{title}.csv", index=False)
    reversed_counts = {str(names[k]): int(counts[k]) for k in (2, 0, 1)}
    (tmp_path / "counts.json").write_text(json.dumps(reversed_counts))
    compare_with_files(opened(), tmp_path, "plain.csv", "labels_label.csv", "counts.json")
    compare_with_files(opened(), tmp_path, "plain.csv", "labels_0.csv")
    page = opened()
    compare_with_files(page, tmp_path, "table.csv", None, "counts.json")
    check_code(page)
    assert page.locator("#classes th").all_inner_texts() == ["owl", "dog", "cat, wild"]
    np.savez_compressed("all.npz", logits=logits, labels=names[labels], names=names, counts=counts)
    compare_with_files(opened(), tmp_path, "all.npz")
    page = opened()
    page.set_input_files("#files", tmp_path / "plain.csv")
    page.set_input_files("#files", tmp_path / "labels_label.csv")
    page.fill("#counts", "owl=50, dog=500, cat=8000")
    page.locator("#counts").blur()
    page.get_by_text("Unknown class name 'cat'; the classes are cat, wild, dog, owl.").wait_for()
    page.fill("#counts", json.dumps({"owl": 50, "cat, wild": 8000, "dog": 1500}))
    page.locator("#counts").blur()
    wait(page)
    assert page.evaluate("window.result.data.counts") == [8000, 1500, 50]
    page.fill("#counts", "1=1500, 0=8000, owl=50")
    page.locator("#counts").blur()
    wait(page)
    assert page.evaluate("window.result.data.counts") == [8000, 1500, 50]


@slow
@pytest.mark.parametrize(
    ("form", "labels", "counts", "says"),
    [
        (["p1", "p2", "p3"], [0, 1, 2], None, "Unknown labels 0; the classes are 1, 2, 3."),
        (["1", "2", "3"], [0, 1, 2], None, "the first row, 1, 2, 3, may be titles or a sample;"),
        (["a", "b", "c"], ["a", "b", "d"], None, "Unknown labels 'd'; the classes are a, b, c."),
        (["a", "b", "c"], [0, 1, 3], None, "Expected labels from 0 to 2, got 3 in row 2."),
        (["a", "b", "c"], [0, 1, 2], {"a": 1, "b": 2}, "class 2 (c) has no count; expected 3"),
        (["a", "b", "c"], [0, 1, 2], {"a": 1, "0": 2}, "Class a has two counts."),
        (["0", "1", "2"], [0, 1, 2], {"a": 1}, "Got the class name 'a', but class names are not"),
        (["0", "1", "2"], ["a", "b", "c"], None, "Labels are names ('a'), but class names are not"),
    ],
)
def test_what_has_no_class_is_said(opened, tmp_path, form, labels, counts, says):
    pd.DataFrame(np.eye(3) + 0.5, columns=form).to_csv(tmp_path / "x.csv", index=False)
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    page = opened()
    page.set_input_files("#files", [tmp_path / "x.csv", tmp_path / "labels.json"])
    if counts is not None:
        page.fill("#counts", json.dumps(counts))
        page.locator("#counts").blur()
    page.get_by_text(says).wait_for(timeout=5000)
    assert page.locator("#found").is_hidden()


@slow
@pytest.mark.parametrize(
    "name", ["x; touch Y #", "it's", 'say "hi"', "$(touch Y)", "-x", "a b", "back\\slash", "`id`"]
)
def test_names_of_files_are_quoted_in_what_is_to_be_copied(
    opened, tmp_path, monkeypatch, capsys, name
):
    monkeypatch.chdir(tmp_path)
    logits, labels, counts = long_tail(300, 3, dtype=np.float64)
    np.save(f"{name} logits.npy", logits)
    np.save(f"{name} labels.npy", labels)
    (tmp_path / f"{name} counts.json").write_text(json.dumps(counts.tolist()))
    page = opened()
    give(
        page, *(tmp_path / f"{name} {what}" for what in ("logits.npy", "labels.npy", "counts.json"))
    )
    check_code(page)
    shell = page.inner_text("#shell").partition("levelhead adjust")[0]
    words = shlex.split(shell.replace("\\\n", " "))
    assert words[:2] == ["levelhead", "tune"]
    assert Path(words[words.index("--logits") + 1]) == Path(f"{name} logits.npy")
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    told = subprocess.run(
        ["sh", "-c", "levelhead() { printf '%s\\n' \"$@\"; }\n" + shell],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split("\n")[:-1] == words[1:]
    assert not Path("Y").exists()


@slow
def test_files_too_large_for_a_page_are_refused_before_they_fill_it(opened, tmp_path):
    with (
        zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("logits.npy", "w", force_zip64=True) as member,
    ):
        header = {"descr": "<f8", "fortran_order": False, "shape": (3_750_000, 10)}
        npy.write_array_header_1_0(member, header)
        for _ in range(30):
            member.write(bytes(10_000_000))
    assert (tmp_path / "bomb.npz").stat().st_size < 400_000
    page = opened()
    page.set_input_files("#files", tmp_path / "bomb.npz")
    page.get_by_text("bomb.npz: logits: becomes more than 200 MB, which is too much").wait_for(
        timeout=20_000
    )
    with (tmp_path / "large.npy").open("wb") as file:
        file.truncate(201_000_000)
    page.set_input_files("#files", tmp_path / "large.npy")
    page.get_by_text("large.npy: has 201 MB, which is too much for a page").wait_for(timeout=20_000)
    short = np.ones((100, 3))
    np.save(tmp_path / "short.npy", short)
    content = (tmp_path / "short.npy").read_bytes()
    (tmp_path / "short.npy").write_bytes(content[:-800])
    page.set_input_files("#files", tmp_path / "short.npy")
    page.get_by_text("short.npy: cut short").wait_for(timeout=5000)


@slow
def test_many_numbers_in_a_small_file_are_refused_before_they_fill_the_page(opened, tmp_path):
    with (
        zipfile.ZipFile(tmp_path / "bytes.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("labels.npy", "w", force_zip64=True) as member,
    ):
        npy.write_array_header_1_0(
            member, {"descr": "|i1", "fortran_order": False, "shape": (190_000_000,)}
        )
        for _ in range(19):
            member.write(bytes(10_000_000))
    page = opened()
    page.set_input_files("#files", tmp_path / "bytes.npz")
    page.get_by_text("bytes.npz: labels: holds 190000000 numbers, which is too much").wait_for(
        timeout=20_000
    )


@slow
def test_a_row_of_too_many_cells_is_refused_at_once(opened, tmp_path):
    (tmp_path / "wide.csv").write_text("\n".join([",".join(["1.5"] * 500_000)] * 2))
    page = opened()
    page.set_input_files("#files", tmp_path / "wide.csv")
    page.get_by_text("wide.csv: a row of 500000 cells, which is too much").wait_for(timeout=10_000)


@slow
@pytest.mark.parametrize("beside", ["a file of counts", "counts in the archive", "no counts"])
def test_counts_that_were_typed_are_those_in_what_is_to_be_copied(
    opened, tmp_path, monkeypatch, beside
):
    monkeypatch.chdir(tmp_path)
    logits, labels, counts = long_tail(300, 3, dtype=np.float64)
    arrays = {"logits": logits, "labels": labels}
    files = [tmp_path / "all.npz"]
    if beside == "counts in the archive":
        arrays["counts"] = counts
    np.savez("all.npz", **arrays)
    if beside == "a file of counts":
        (tmp_path / "counts.json").write_text(json.dumps(counts.tolist()))
        files.append(tmp_path / "counts.json")
    page = opened()
    give(page, *files)
    page.fill("#counts", "9000, 800, 70")
    page.locator("#counts").blur()
    wait_until(page, "window.result.data.counts[0] === 9000")
    check_code(page)
    shell = page.inner_text("#shell")
    assert "--counts 9000,800,70" in shell
    assert lh.Tuned.load("tuned.json").counts == (9000, 800, 70)


@slow
def test_files_after_the_example_are_not_counted_as_it_is(opened, tmp_path):
    logits, labels, _ = long_tail(400, 10, dtype=np.float64)
    np.save(tmp_path / "logits.npy", logits)
    np.save(tmp_path / "labels.npy", labels)
    page = opened()
    page.click("#example")
    wait(page)
    page.set_input_files("#files", tmp_path / "logits.npy")
    page.get_by_text("Labels are missing: 400 class numbers").wait_for()
    page.set_input_files("#files", tmp_path / "labels.npy")
    page.get_by_text("400 samples, 10 classes, logits, counted by their labels").wait_for()
    assert page.evaluate("window.result.data.counts") == np.bincount(labels).tolist()
    assert page.evaluate("window.result.data.names") is None


@slow
@pytest.mark.parametrize(
    ("titles", "counts", "says"),
    [
        (["a", "a", "c"], "", "Two classes are called 'a'; expected distinct names."),
        (["a", "b", "c"], "a=1, b=2, c=3, a=4", "Class a has two counts."),
        (["a", "b", "c"], '{"a": 1, "b": 2, "c": 3, "a": 4}', '"a" is listed twice.'),
    ],
)
def test_a_class_that_is_there_twice_is_refused(opened, tmp_path, titles, counts, says):
    lines = [",".join(titles) + ",label", *(f"0.5,1.5,{k}.5,{titles[k]}" for k in range(3))]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    page = opened()
    page.set_input_files("#files", tmp_path / "x.csv")
    if counts:
        wait(page)
        page.fill("#counts", counts)
        page.locator("#counts").blur()
    page.get_by_text(says).wait_for(timeout=5000)
    assert page.locator("#found").is_hidden()


@slow
def test_percentages_are_not_taken_for_logits(opened, tmp_path):
    logits, labels, _ = long_tail(300, 3, dtype=np.float64)
    np.save(tmp_path / "logits.npy", 100 * np.exp(lh.measure.log_softmax(logits)))
    np.save(tmp_path / "labels.npy", labels)
    page = opened()
    page.set_input_files("#files", [tmp_path / "logits.npy", tmp_path / "labels.npy"])
    page.get_by_text("Got what looks like percentages: rows from 0 to 100").wait_for(timeout=5000)


@slow
@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_text_that_the_command_line_refuses_is_refused(opened, tmp_path, encoding):
    logits, labels, _ = long_tail(300, 3, dtype=np.float64)
    names = ["chat", "chien", "zèbre"]
    frame = pd.DataFrame(logits, columns=names).assign(label=[names[y] for y in labels])
    frame.to_csv(tmp_path / "x.csv", index=False, encoding=encoding)
    with pytest.raises(lh.LevelheadError, match="not valid UTF-8; save the file as UTF-8"):
        read_files(tmp_path / "x.csv", None, None)
    page = opened()
    page.set_input_files("#files", tmp_path / "x.csv")
    page.get_by_text("x.csv: not valid UTF-8; save the file as UTF-8").wait_for(timeout=5000)


@slow
def test_one_score_and_its_label_are_not_taken_for_two_classes(opened, tmp_path):
    labels = np.repeat([0, 1], [40, 10])
    frame = pd.DataFrame({"score": np.linspace(-2, 2, 50), "label": labels})
    frame.to_csv(tmp_path / "x.csv", index=False)
    page = opened()
    page.set_input_files("#files", tmp_path / "x.csv")
    said = page.get_by_text("Expected at least two classes; for one score z per sample, give two")
    said.wait_for(timeout=5000)


@slow
@pytest.mark.parametrize("title", ["{}", "logit_{}"])
def test_decimal_commas_are_said(opened, tmp_path, title):
    logits, labels, _ = long_tail(300, 3, dtype=np.float64)
    frame = pd.DataFrame(logits, columns=[title.format(name) for name in ("cat", "dog", "emu")])
    path = tmp_path / "x.csv"
    frame.assign(id=range(len(frame)), label=labels).to_csv(path, sep=";", decimal=",", index=False)
    page = opened()
    page.set_input_files("#files", path)
    page.get_by_text("save decimals with a point").wait_for(timeout=5000)


@slow
def test_quotes_in_names_of_a_table_are_read_as_the_csv_module_reads_them(opened, tmp_path):
    logits, labels, _ = long_tail(300, 3, dtype=np.float64)
    names = ['"a"', 'say "hi", b', "it's"]
    frame = pd.DataFrame(logits, columns=names).assign(label=np.array(names)[labels])
    frame.to_csv(tmp_path / "x.csv", index=False)
    page = opened()
    give(page, tmp_path / "x.csv")
    assert page.evaluate("window.result.data.names") == names


def ten_sets() -> list[dict]:
    """Ten data sets that differ in size, classes, imbalance, kind and what is known."""
    sets = []
    for seed, (n, classes, ratio, sharp) in enumerate(
        [
            (300, 2, 10, 1.0),
            (400, 3, 100, 2.0),
            (900, 5, 20, 0.5),
            (1500, 10, 100, 1.5),
            (2500, 20, 50, 3.0),
            (600, 4, 1, 1.0),
            (800, 6, 300, 1.0),
            (1200, 8, 10, 0.2),
            (500, 3, 30, 6.0),
            (2000, 40, 100, 1.0),
        ]
    ):
        rng = np.random.default_rng(100 + seed)
        counts = lh.counts.long_tail(3000, classes, ratio)
        shares = counts / counts.sum() if seed % 2 else np.full(classes, 1 / classes)
        labels = np.concatenate([np.arange(classes), rng.choice(classes, n - classes, p=shares)])
        logits = 2 * np.eye(classes)[labels] + rng.normal(size=(n, classes)) + np.log(counts)
        scores = sharp * logits
        kind: Kind = "logits"
        if seed % 5 == 2:
            scores = np.exp(lh.measure.log_softmax(scores))
            kind = "probabilities"
        counts_or_none = None if seed % 3 == 1 else counts
        sets.append({"logits": scores, "labels": labels, "counts": counts_or_none, "kind": kind})
    return sets


@slow
@pytest.mark.parametrize("at", range(10))
def test_the_choice_is_pythons_on_ten_data_sets(opened, tmp_path, at):
    data = ten_sets()[at]
    np.save(tmp_path / "logits.npy", data["logits"])
    np.save(tmp_path / "labels.npy", data["labels"])
    files = [tmp_path / "logits.npy", tmp_path / "labels.npy"]
    if data["counts"] is not None:
        (tmp_path / "counts.json").write_text(json.dumps(data["counts"].tolist()))
        files.append(tmp_path / "counts.json")
    page = opened()
    give(page, *files)
    compare_offsets(page, **data, close=1e-6)


@slow
def test_twenty_thousand_samples_of_a_hundred_classes_give_the_same_path(opened, tmp_path):
    logits, labels, counts = long_tail(20_000, 100)
    page = opened()
    drop(page, tmp_path, counts, logits=logits, labels=labels)
    compare(page, logits, labels, counts)
    # The temperature is fitted on other samples, as there are too many.
    compare_offsets(page, logits, labels, counts, close=0.05, judged=0.002)


@slow
def test_what_does_not_fit_is_said(opened, tmp_path):
    page = opened()
    np.save(tmp_path / "logits.npy", np.ones((4, 3)))
    page.set_input_files("#files", tmp_path / "logits.npy")
    page.get_by_text("Labels are missing: 4 class numbers").wait_for()
    np.save(tmp_path / "labels.npy", np.array([0, 1, 2, 3]))
    page.set_input_files("#files", tmp_path / "labels.npy")
    page.get_by_text("Expected labels from 0 to 2, got 3 in row 3.").wait_for()
    page.fill("#counts", "9, 5")
    page.locator("#counts").blur()
    page.get_by_text("Expected 3 counts, one per class, got 2.").wait_for()
    assert page.locator("#found").is_hidden()


@slow
@pytest.mark.parametrize(
    ("width", "theme"), [(1200, "light"), (1200, "dark"), (390, "light"), (390, "dark")]
)
def test_the_page_fits_its_window(opened, width, theme):
    page = opened(width, theme)
    page.click("#example")
    wait(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_example_in_the_page_is_of_the_package():
    text = PAGE.read_text(encoding="utf-8")
    raw, labels = (
        re.search(rf'id="example-{name}">([^<]*)<', text) for name in ("logits", "labels")
    )
    assert raw is not None
    assert labels is not None
    network = shipped_snapshots()["baseline"]
    shown = np.frombuffer(base64.b64decode(raw[1]), "<f2").reshape(1000, 10)
    np.testing.assert_array_equal(shown, network.logits("test")[:1000].astype(np.float16))
    assert labels[1] == "".join(map(str, network.labels["test"][:1000]))


def test_the_page_asks_for_nothing_from_elsewhere():
    text = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"https?://|\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon", text) == []
    assert "default-src 'none'" in text


def test_the_site_has_the_page_and_leads_to_it():
    settings = re.search(
        r"^html_extra_path = (\[[^]]*\])", (PAGE.parent / "conf.py").read_text(), re.M
    )
    assert settings is not None
    assert PAGE.name in json.loads(settings[1])
    assert f'href="{PAGE.name}"' in (PAGE.parent / "index.md").read_text(encoding="utf-8")
