"""The page of a model with several labels per sample: thresholds, recall and precision, before and after."""

from __future__ import annotations

import re

import numpy as np
import pytest

from levelhead import tune_labels
from levelhead.report import of_labels, of_logits, write
from levelhead.report.page import render_page
from levelhead.report.use_it import label_code
from levelhead.report.verdict import label_verdict

NAMES = ["sky", "person", "</script><b>kite</b>", "plain"]


def samples(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.random((500, 4)) < [0.5, 0.2, 0.06, 0.03]
    return 2.2 * labels - [0.8, 2.2, 3.4, 4.0] + rng.normal(size=(500, 4)), labels


def test_every_label_has_what_scikit_learn_counts():
    metrics = pytest.importorskip("sklearn.metrics")
    logits, labels = samples()
    tuned = tune_labels(logits, labels, None, bootstrap=50)
    subject = of_labels(logits, labels, tuned=tuned, names=NAMES)
    for k, row in enumerate(subject.rows):
        assert row.positives == labels[:, k].sum()
        for i, cut in enumerate((0.5, row.threshold)):
            predicted = 1 / (1 + np.exp(-logits[:, k])) > cut
            assert row.recall[i] == pytest.approx(metrics.recall_score(labels[:, k], predicted))
            precision = metrics.precision_score(labels[:, k], predicted, zero_division=np.nan)
            assert (np.nan if row.precision[i] is None else row.precision[i]) == pytest.approx(
                precision, nan_ok=True
            )


def test_a_precision_of_nothing_is_not_a_number():
    subject = of_labels([[-1.0], [-2.0], [-3.0], [-2.5]], [[1], [1], [0], [0]], bootstrap=0)
    assert subject.rows[0].precision == (None, 1.0)
    assert "\N{EN DASH}</td>" in render_page([subject])


def test_the_verdict_follows_the_expected_gain():
    logits, labels = samples()
    found = label_verdict(of_labels(logits, labels, bootstrap=200))
    assert (found.status, found.headline[:23]) == ("ship", "Ship the new thresholds")
    assert "The probability that it will be better at all is " in found.lines["How certain"]
    few = label_verdict(of_labels(logits[:40], labels[:40], bootstrap=0))
    assert (few.status, few.headline[:24]) == ("unclear", "Leave the model as it is")
    noise = of_labels(np.random.default_rng(3).normal(size=(60, 4)), labels[:60], bootstrap=100)
    doubted = of_labels(
        logits[:60], labels[:60], tuned=noise.choice | {"gain": 0.0, "gain_interval": [-0.1, 0.1]}
    )
    assert (
        label_verdict(doubted).headline == "Leave the model as it is for now: no difference is seen"
    )
    assert "--anyway" in label_code(doubted)["command"]
    on_test = label_verdict(of_labels(logits, labels, samples="test", bootstrap=0))
    assert on_test.status == "warn"
    assert "chosen on test labels" in on_test.alarms[0].text


def test_positives_here_are_not_shown_as_those_of_training():
    logits, labels = samples()
    without, counted = (
        of_labels(logits, labels, bootstrap=20),
        of_labels(logits, labels, [90, 30, 9, 4], bootstrap=20),
    )
    assert [row.count for row in without.rows] == [None] * 4
    assert [row.count for row in counted.rows] == [90, 30, 9, 4]
    assert "In training" not in render_page([without])
    assert "In training" in render_page([counted])
    shown = of_labels(logits[::2], labels[::2], tuned=without.choice, apart=True)
    assert [row.count for row in shown.rows] == [None] * 4


def test_names_are_text_and_labels_stand_next_to_classes():
    logits, labels = samples()
    counts = np.array([90, 30, 9])
    rng = np.random.default_rng(1)
    classes = of_logits(rng.normal(size=(60, 3)) + 4, rng.integers(3, size=60), counts, gamma=0.2)
    page = render_page(
        [classes, of_labels(logits, labels, names=NAMES, title="<i>t</i>", bootstrap=20)]
    )
    assert "<b>kite" not in page
    assert "<i>t" not in page
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("metric", ["macro_f1", "balanced_error"])
def test_the_code_moves_the_biases_of_the_model(metric):
    torch = pytest.importorskip("torch")
    logits, labels = samples()
    subject = of_labels(
        logits, labels, tuned=tune_labels(logits, labels, metric=metric, bootstrap=50)
    )
    assert ("--metric balanced_error" in label_code(subject)["command"]) == (
        metric == "balanced_error"
    )
    net = torch.nn.Linear(3, 4)
    before = net.bias.detach().numpy().copy()
    exec(
        label_code(subject)["python"],
        {"model": net, "logits": logits, "labels": labels, "counts": None},
    )
    assert net.bias.detach().numpy() - before == pytest.approx(
        np.array(subject.choice["offset"]), abs=1e-5
    )


def test_the_command_writes_the_page_and_the_file_leads_back_to_it(
    tmp_path, monkeypatch, levelhead
):
    monkeypatch.chdir(tmp_path)
    logits, labels = samples()
    np.save("l.npy", logits)
    np.save("y.npy", labels.astype(int))
    words = (
        "tune",
        "--task",
        "multilabel",
        "--logits",
        "l.npy",
        "--labels",
        "y.npy",
        "--bootstrap",
        "50",
    )
    status, _, err = levelhead(*words, "-o", "tuned.json", "--report", "page.html")
    assert status == 0, err
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "levelhead adjust model.safetensors --tuned tuned.json -o adjusted.safetensors" in page
    assert page.count('<th scope="row">') == 4
    assert levelhead("report", "tuned.json", "-o", "again.html")[0] == 0
    np.save("m.npy", logits[::2])
    np.save("z.npy", labels[::2].astype(int))
    words = ("report", "m.npy", "--labels", "z.npy", "--tuned", "tuned.json", "-o", "other.html")
    status, _, err = levelhead(*words)
    assert status == 0, err
    assert "250 samples that had no part in the choice" in (tmp_path / "other.html").read_text(
        encoding="utf-8"
    )
    assert write(tmp_path / "third.html", [of_labels(logits, labels, bootstrap=0)]).exists()
