"""Twenty choices: terminal, Python, files, page, trainers, scikit-learn and playground say the same of each."""

import html
import json
import re
import shutil
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from sklearn.base import BaseEstimator, ClassifierMixin

import levelhead as lh
from levelhead.core.evidence import FEWEST
from levelhead.hosts._trackers import outcome_of
from levelhead.hosts.sklearn import AdjustedClassifierCV
from levelhead.report import of_tuned
from levelhead.report.use_it import code_to_use

PLAYGROUND = Path(__file__).parents[1] / "docs" / "playground.html"
WORDS = {"better", "likely better", "no difference seen", "worse", "changes nothing"}


class Choice(NamedTuple):
    """Samples of a model with a signal, and how to choose on them."""

    name: str
    sizes: tuple[int, ...]
    signal: float = 2.0
    lean: float = 1.0  # 1: toward frequent classes, as in training; 0: level; -1: toward rare ones
    metric: str = "balanced_error"
    rule: str = "offsets"
    floor: str = ""
    target: str = ""
    chosen_on: str = "held-out"
    blind: int | None = None  # a class whose score is always the lowest


CHOICES = [
    Choice("plain", (300, 60, 40)),
    Choice("many", (9000, 900, 300)),
    Choice("ten", (6, 2, 2)),
    Choice("nineteen", (11, 4, 4), signal=3.0),
    Choice("twenty", (10, 5, 5)),
    Choice("few", (60, 30, 20), signal=2.5),
    Choice("level", (200, 200, 200), lean=0.0),
    Choice("weak", (300, 60, 40), signal=0.3),
    Choice("costs-accuracy", (1940, 60), signal=0.8),
    Choice("never-right", (300, 60, 40), metric="error", blind=2),
    Choice("macro-f1", (300, 60, 40), metric="macro_f1"),
    Choice("few-macro-f1", (60, 20, 10), metric="macro_f1"),
    Choice("mcc", (300, 60, 40), metric="mcc"),
    Choice("accuracy", (300, 60, 40), metric="error"),
    Choice("worst-recall", (300, 60, 40), metric="worst_recall"),
    Choice("rescale", (300, 60, 40), rule="rescale"),
    Choice("shift", (300, 60, 40), rule="shift", lean=0.3),
    Choice("floor", (300, 60, 40), metric="error", floor="2=0.7"),
    Choice("target", (300, 60, 40), target="0.2,0.3,0.5"),
    Choice("test-data", (300, 60, 40), chosen_on="test"),
]
IDS = [choice.name for choice in CHOICES]
BALANCED = [
    choice
    for choice in CHOICES
    if (choice.metric, choice.rule) == ("balanced_error", "offsets") and not choice.target
]


@cache
def samples(choice: Choice) -> tuple[np.ndarray, np.ndarray]:
    """Return logits and labels; all logits are positive, as a rule that multiplies wants them."""
    rng = np.random.default_rng(sum(choice.sizes))
    classes = len(choice.sizes)
    labels = np.repeat(np.arange(classes), choice.sizes)
    noise = rng.normal(size=(len(labels), classes))
    logits = choice.signal * np.eye(classes)[labels] + noise
    logits += choice.lean * np.log(np.array(choice.sizes) / max(choice.sizes)) + 12
    if choice.blind is not None:
        logits[:, choice.blind] = -20.0
    return logits, labels


def counts(choice: Choice) -> list[int]:
    return [10 * size for size in choice.sizes]


@cache
def tuned_in_python(choice: Choice) -> lh.Tuned:
    logits, labels = samples(choice)
    floors = None
    if choice.floor:
        label, _, recall = choice.floor.partition("=")
        floors = {int(label): float(recall)}
    target = [float(share) for share in choice.target.split(",")] if choice.target else None
    return lh.tune(
        logits,
        labels,
        counts(choice),
        metric=lh.Goal(choice.metric, floors=floors),
        rule=choice.rule,
        target=target,
        chosen_on=choice.chosen_on,
    )


def command(choice: Choice) -> list[str]:
    """Return the words of `levelhead tune` for a choice."""
    words = ["tune", "--logits", "held-out.npz", "--metric", choice.metric, "--rule", choice.rule]
    words += ["--chosen-on", choice.chosen_on]
    if choice.floor:
        words += ["--floor", choice.floor]
    if choice.target:
        words += ["--target", choice.target]
    return words


def page_text(page: str, kind: str) -> str:
    """Return the text of the first element of a class, or "" if there is none."""
    match = re.search(rf'class="{kind}">(.*?)</', page, re.S)
    return html.unescape(match[1]) if match else ""


def test_there_are_twenty_choices_and_every_verdict_is_among_them():
    assert len(CHOICES) == len(set(IDS)) == 20
    nothing = lh.tune(*samples(CHOICES[0]), counts(CHOICES[0]), rule=lh.rules.Shift(0.0))
    over = lh.tune(*samples(CHOICES[6]), counts(CHOICES[0]), rule=lh.rules.Shift(3.0))
    verdicts = {tuned_in_python(choice).verdict for choice in CHOICES}
    assert verdicts | {nothing.verdict, over.verdict} == WORDS
    prices = [choice.name for choice in CHOICES if tuned_in_python(choice).price_text()]
    assert "costs-accuracy" in prices


@pytest.mark.parametrize("choice", CHOICES, ids=IDS)
def test_a_verdict_follows_from_the_gain_alone(choice):
    """What is said agrees with the numbers beside it, and with whether it is to be applied."""
    tuned = tuned_in_python(choice)
    low, high = tuned.gain_interval
    allowed = {"no difference seen"}
    if len(samples(choice)[1]) >= FEWEST:
        allowed = {"better"} if low > 0 else {"worse"} if high < 0 else WORDS - {"better", "worse"}
    if tuned.evidence.changed == 0:
        allowed = {"changes nothing"}
    assert tuned.verdict in allowed
    assert low <= tuned.gain <= high
    if tuned.verdict in ("better", "likely better"):
        assert tuned.worthwhile
    if tuned.verdict in ("worse", "changes nothing") and not tuned.floors:
        assert not tuned.worthwhile


@pytest.mark.parametrize("choice", CHOICES, ids=IDS)
def test_all_surfaces_say_the_same(choice, levelhead, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    logits, labels = samples(choice)
    classes = len(choice.sizes)
    np.savez("held-out.npz", logits=logits, labels=labels, counts=counts(choice))
    np.save("new.npy", logits)
    weight = np.eye(classes, 8, dtype=np.float32)
    save_file({"fc.weight": weight, "fc.bias": np.zeros(classes, np.float32)}, "model.safetensors")

    tuned = tuned_in_python(choice)
    said = tuned.verdict_text()
    gain = f"{tuned.change_text()}: {said}"

    # The terminal, its JSON, and the file.
    files = ("-o", "tuned.json", "--report", "page.html", "--model", "model.safetensors")
    status, out, _ = levelhead(*command(choice), *files)
    assert status == 0
    first = out.splitlines()[0]
    assert first.startswith(gain)
    assert first == "; ".join(filter(None, (gain, tuned.price_text())))
    plain = json.loads(levelhead(*command(choice), "--json")[1])
    assert (plain["verdict"], plain["worthwhile"]) == (tuned.verdict, tuned.worthwhile)
    kept = lh.Tuned.load("tuned.json")
    assert (kept.verdict_text(), kept.worthwhile) == (said, tuned.worthwhile)

    # Python.
    assert tuned.summary().splitlines()[0] == first
    assert gain in str(tuned)
    assert said in str(tuned.evidence)
    assert said in tuned._repr_html_().replace("&gt;", ">")

    # The page, and what it tells to do.
    page = Path("page.html").read_text(encoding="utf-8")
    assert page_text(page, "said") == said
    assert page_text(page, "gain") == tuned.change_text()
    assert page_text(page, "price") == tuned.price_text()
    for about in ("never right", "few samples"):
        assert tuned.facts().get(about, "") in html.unescape(page)
    sign = re.search(r'<section class="card verdict (\w+)"', page)[1]
    signs = {"better": "better", "likely better": "better", "worse": "worse"}
    expected = "test" if choice.chosen_on == "test" else signs.get(tuned.verdict, "unclear")
    assert sign == expected
    code = code_to_use(of_tuned(tuned, model="model.safetensors")).shell
    assert ("--anyway" in code) == (tuned.worthwhile is False)

    # The commands that act on it.
    for words in (
        ["apply", "new.npy", "-o", "out.npy"],
        ["adjust", "model.safetensors", "-o", "o.safetensors"],
    ):
        status, _, err = levelhead(*words, "--tuned", "tuned.json")
        assert status == (0 if tuned.worthwhile else 3)
        assert ("nothing to gain" in err) == (not tuned.worthwhile)
        assert tuned.worthwhile or said in err

    # A trainer's callback.
    adjusted = SimpleNamespace(layers=["fc"]) if tuned.worthwhile else None
    outcome = outcome_of(tuned, adjusted, (torch.tensor(logits), torch.tensor(labels)), "net")
    assert gain in outcome.text
    assert ("not applied" in outcome.text) == (not tuned.worthwhile)
    told = outcome.page()
    assert page_text(told, "said") == said
    assert ("<h3>Already applied</h3>" in told) == bool(tuned.worthwhile)


@pytest.mark.parametrize(
    "choice", [CHOICES[0], CHOICES[5], CHOICES[10]], ids=lambda each: each.name
)
def test_compare_and_scikit_learn_say_the_same(choice):
    tuned = tuned_in_python(choice)
    table = lh.compare(*samples(choice), counts(choice), metric=choice.metric)
    row = next(line for line in str(table).splitlines() if line.startswith("offsets "))
    assert f"{tuned.change_text()}: {tuned.verdict}" in row

    logits, labels = samples(choice)
    model = AdjustedClassifierCV(
        Identity().fit(logits, labels),
        cv="prefit",
        refit=False,
        scoring=choice.metric,
        counts=counts(choice),
    ).fit(logits, labels)
    # Folds are pooled before they are tuned on, so that the same samples give the same choice.
    assert model.summary_.splitlines()[0] == tuned.summary().splitlines()[0]
    assert model.tuned_.worthwhile == tuned.worthwhile


class Identity(ClassifierMixin, BaseEstimator):
    """A classifier whose scores are its features."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        return X


@pytest.fixture(scope="module")
def tab():
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        pytest.skip("chromium is not installed (apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as library:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = library.chromium.launch(executable_path=chromium, args=arguments)
        yield browser.new_page(offline=True)
        browser.close()


@pytest.mark.slow
@pytest.mark.parametrize("choice", BALANCED, ids=lambda choice: choice.name)
def test_the_playground_says_the_same(choice, tab, tmp_path):
    logits, labels = samples(choice)
    np.save(tmp_path / "logits.npy", logits)
    np.save(tmp_path / "labels.npy", labels)
    (tmp_path / "counts.json").write_text(json.dumps(counts(choice)))
    tab.goto(PLAYGROUND.as_uri())
    tab.set_input_files("#files", [str(path) for path in sorted(tmp_path.iterdir())])
    tab.get_by_text("all fits and paths in").wait_for(timeout=60_000)
    # It deals samples into other folds, so that numbers differ a little: words and their form do not.
    tuned = tuned_in_python(choice)
    verdict, change = tab.inner_text("#verdict"), tab.inner_text("#change")
    assert without_numbers(verdict).lower() == without_numbers(tuned.verdict_text())
    expected = "; ".join(filter(None, (tuned.change_text(), tuned.price_text())))
    shown = change.replace(" %", "%").replace("→", "->")
    assert without_numbers(shown).lower() == without_numbers(expected).lower()


def without_numbers(text: str) -> str:
    """Return a text with its digits replaced, so that only words and decimals are compared."""
    return re.sub(r"-?\d+", "#", text)
