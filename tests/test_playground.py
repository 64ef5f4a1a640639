"""The playground of the docs in headless chromium: its paths and errors are those of `lh.gamma_path` and `lh.tune`.

It is opened from its file, offline. Without chromium these tests are skipped.
"""

import base64
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import levelhead as lh
from levelhead import cli
from levelhead.support.types import Kind
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
    page.get_by_text("exact paths in").wait_for(timeout=60_000)


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
    """Return what the page computed for a rule."""
    kept = "lo: Array.from(lo, String), hi: Array.from(hi, String), ...curve, chosen, expected, verdict"
    take = "const {lo, hi, curve, chosen, expected, verdict} = window.result.paths[rule]"
    return page.evaluate(f"rule => {{ {take}; return {{ {kept} }}; }}", rule)


def compare(
    page, logits, labels, counts, kind: Kind = "logits", rules=("rescale", "shift")
) -> None:
    for rule in rules:
        made = {"rescale": lh.rules.Rescale, "shift": lh.rules.Shift}[rule](range=RANGES[rule])
        path, here = lh.gamma_path(logits, labels, counts, rule=made, kind=kind), found(page, rule)
        for name, ends in (("lo", path.lo), ("hi", path.hi)):  # of every sample
            seen = np.array([float(end.replace("Infinity", "inf")) for end in here[name]])
            np.testing.assert_allclose(seen, ends, rtol=1e-13, atol=1e-300, err_msg=rule)
        assert len(here["gammas"]) == len(path.gammas)
        np.testing.assert_allclose(here["gammas"], path.gammas, rtol=1e-13)
        np.testing.assert_allclose(
            here["error"], path.error, atol=1e-12
        )  # one sample would be 1 / N
        np.testing.assert_allclose(here["balanced"], path.balanced_error, atol=1e-11)
        assert here["chosen"] == pytest.approx(path.best().gamma, abs=1e-12)


def check_code(page) -> None:
    """Run the code and the first command that the page shows, in the folder of the files: they choose what it chose."""
    for name, rule in (("RS", "rescale"), ("Shift", "shift")):
        page.get_by_role("button", name=name, exact=True).click()
        namespace: dict = {}
        exec(page.inner_text("#python"), namespace)
        assert namespace["path"].best().gamma == pytest.approx(
            found(page, rule)["chosen"], abs=1e-12
        )
        assert namespace["tuned"].worthwhile
    command = (
        page.inner_text("#shell")
        .replace("\\\n", "")
        .partition("levelhead adjust")[0]
        .splitlines()[-1]
    )
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
    tuned = lh.tune(
        logits, labels, counts, rule="rescale", metric=lh.Goal(criterion="balanced_error")
    )
    here = found(page, "rescale")
    assert here["chosen"] == pytest.approx(tuned.gamma, abs=1e-12)
    assert here["balanced"][0] == pytest.approx(tuned.balanced_error_at_zero, abs=1e-12)
    assert here["verdict"] == tuned.verdict == "better"
    assert here["expected"] == pytest.approx(tuned.expected_gain, abs=0.005)


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
    assert page.evaluate("Object.keys(window.result.paths)") == ["shift"]
    compare(page, shares, labels, counts, "probabilities", ["shift"])


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
    assert page.inner_text("#verdict") == "Better"
    assert page.locator("#classes th").first.inner_text() == "truck"
    monkeypatch.chdir(tmp_path)
    np.save("logits.npy", logits)
    np.save("labels.npy", labels)
    check_code(page)
    assert page.inner_text("#shell").startswith(
        "levelhead tune --logits logits.npy \\\n    --labels labels.npy --counts 5000,2997,"
    )


@slow
def test_twenty_thousand_samples_of_a_hundred_classes_give_the_same_path(opened, tmp_path):
    logits, labels, counts = long_tail(20_000, 100)
    page = opened()
    drop(page, tmp_path, counts, logits=logits, labels=labels)
    compare(page, logits, labels, counts)


@slow
def test_what_does_not_fit_is_said(opened, tmp_path):
    page = opened()
    np.save(tmp_path / "logits.npy", np.ones((4, 3)))
    page.set_input_files("#files", tmp_path / "logits.npy")
    page.get_by_text("Labels are missing: 4 class numbers").wait_for()
    np.save(tmp_path / "labels.npy", np.array([0, 1, 2, 3]))
    page.set_input_files("#files", tmp_path / "labels.npy")
    page.get_by_text("Counts are missing").wait_for()
    page.fill("#counts", "9, 5, 1")
    page.locator("#counts").blur()
    page.get_by_text("Expected labels from 0 to 2, got 3 in row 3.").wait_for()
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
