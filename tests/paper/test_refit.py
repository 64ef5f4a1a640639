"""Heads fitted again on training features, against naive minima and scikit-learn."""

import json
from pathlib import Path

import numpy as np
import pytest

from levelhead import Head
from levelhead_lab.lab.snapshot import Snapshot
from levelhead_lab.paper.beyond_texts import heads_text, unlabelled_text
from levelhead_lab.paper.record import whole_snapshots
from levelhead_lab.paper.refit import (
    companion_errors,
    fit_head,
    fit_scales,
    halves_errors,
    refitted_errors,
)

RESULTS = Path(__file__).parents[2] / "results"
COUNTS = [80, 30, 10]


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    """Three overlapping classes, and a head that leans to the first."""
    rng = np.random.default_rng(0)
    labels = {"train": np.repeat(np.arange(3), COUNTS), "test": np.repeat(np.arange(3), 60)}
    features = {s: 1.5 * np.eye(3, 5)[y] + rng.normal(size=(len(y), 5)) for s, y in labels.items()}
    return Snapshot(
        Head(np.diag([3.0, 2.0, 1.0]) @ np.eye(3, 5)), np.array(COUNTS), features, labels
    )


def test_a_new_head_is_that_of_a_balanced_logistic_regression(snapshot):
    linear = pytest.importorskip("sklearn.linear_model")
    decay = 0.01
    # scikit-learn sums its weighted losses: 3 classes x 40 a class, where ours is a mean
    fit = linear.LogisticRegression(
        C=1 / (decay * 120), class_weight="balanced", fit_intercept=False, tol=1e-8, max_iter=1000
    )
    fit.fit(snapshot.features["train"], snapshot.labels["train"])
    np.testing.assert_allclose(fit_head(snapshot, decay), fit.coef_, atol=2e-3)


def test_scales_and_offsets_are_a_minimum_of_the_balanced_cross_entropy(snapshot):
    logits, labels = snapshot.logits("train"), snapshot.labels["train"]

    def loss(scale, offset) -> float:
        scores = logits * scale + offset
        right = np.exp(scores)[np.arange(len(labels)), labels] / np.exp(scores).sum(axis=1)
        return float(np.mean([-np.log(right[labels == k]).mean() for k in range(3)]))

    rng = np.random.default_rng(1)
    for offsets in (False, True):
        scale, offset = fit_scales(snapshot, offsets=offsets)
        assert offsets or not offset.any()
        least = loss(scale, offset)
        assert least < loss(np.ones(3), np.zeros(3))
        for _ in range(50):
            moved = rng.normal(scale=0.05, size=(2, 3)) * [[1.0], [offsets]]
            assert loss(scale + moved[0], offset + moved[1]) >= least - 1e-5


def test_a_half_judges_what_the_other_half_chose(snapshot):
    errors_of = halves_errors(snapshot)
    assert errors_of.keys() == {"rescale", "shift"}
    for errors in errors_of.values():
        assert errors["whole"] < refitted_errors(snapshot, 0.0)["alone"]
        assert abs(errors["halves"] - errors["whole"]) < 5
    same = {s: np.repeat(x, 2, axis=0) for s, x in snapshot.features.items()}
    labels = {s: y.repeat(2) for s, y in snapshot.labels.items()}
    twice = halves_errors(Snapshot(snapshot.head, snapshot.counts, same, labels))
    # both halves are the same samples, so nothing depends on which of them chose
    assert all(errors["halves"] == errors["whole"] for errors in twice.values())


def test_a_hold_out_fits_what_moves_the_head_and_nothing_else(snapshot):
    labels = {**snapshot.labels, "held-out": np.repeat(np.arange(3), 40)}
    rng = np.random.default_rng(2)
    held = 1.5 * np.eye(3, 5)[labels["held-out"]] + rng.normal(size=(120, 5))
    features = {**snapshot.features, "held-out": held}
    errors = companion_errors(Snapshot(snapshot.head, snapshot.counts, features, labels))
    gamma_free = refitted_errors(snapshot, 0.0)
    assert {key: errors[key] for key in gamma_free if key != "RS"} == {
        key: error for key, error in gamma_free.items() if key != "RS"
    }
    assert all(errors[rule] < errors["alone"] for rule in ("RS", "shift", "offsets", "vector"))


@pytest.mark.slow
def test_the_stored_numbers_are_those_of_the_stored_networks():
    stored = json.loads((RESULTS / "heads.json").read_text(encoding="utf-8"))
    for method, snapshot in whole_snapshots(RESULTS / "networks").items():
        network = stored["networks"][method]
        refitted = refitted_errors(snapshot, network["gamma"])
        assert refitted == pytest.approx(network["errors"], abs=0.15)
        for rule, errors in halves_errors(snapshot).items():
            assert errors == pytest.approx(network["unlabelled"][rule], abs=0.02)


def test_what_is_said_of_them_names_every_network():
    stored = json.loads((RESULTS / "heads.json").read_text(encoding="utf-8"))
    for method, title in (("baseline", "Baseline"), ("wvn", "WVN")):
        network = stored["networks"][method]
        assert f"where RS has {network['errors']['RS']:.2f}" in heads_text(stored)
        halves = network["unlabelled"]["shift"]
        both = f"{title} with the shift {halves['whole']:.2f} and {halves['halves']:.2f}"
        assert both in unlabelled_text(stored)
    for companion in stored["companions"]:
        if companion["method"] == "crt":
            assert f"has {companion['errors']['alone']:.2f} where a new head" in heads_text(stored)
    rows = [network["errors"] for network in stored["networks"].values()]
    rows += [companion["errors"] for companion in stored["companions"]]
    apart = [
        row[fit] - row["RS"]
        for row in rows
        for fit in ("nearest class mean", "new head", "scales", "scales and offsets")
    ]
    assert f"ahead of {sum(np.array(apart) > 0)} of {len(apart)}:" in heads_text(stored)
