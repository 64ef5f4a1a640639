"""Weights averaged over the last epochs: by both engines, and through interruptions."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from levelhead_lab.fast.fit_many import fit_many
from levelhead_lab.fast.job import Job
from levelhead_lab.lab import data, load, nets, preprocess, recipe, train
from levelhead_lab.methods import METHODS
from levelhead_lab.runs import checkpoint
from levelhead_lab.runs.spec import Spec

RECIPE = replace(
    recipe.find_recipe("digits"), epochs=6, milestones=(3,), batch=32, average=0.5
)  # the last three of six epochs


@pytest.fixture(scope="module")
def digits():
    every = data.imbalance(load.digits(), "long-tail", ratio=20, largest=60)
    return replace(every, test=every.test[np.arange(0, 500, 8)])  # each epoch looks at all of them


def make_job(digits, method, seed=0, how=RECIPE, start=None):
    net = nets.build(
        "digits", digits.classes, head=METHODS[method].head, shape=digits.shape, seed=seed
    ).double()
    return Job(net, digits, how, METHODS[method], seed, start)


def fit_plainly(job, **options):
    net = copy.deepcopy(job.net)
    end = train.fit(
        net, job.data, job.recipe, job.method, seed=job.seed, start=job.start, **options
    )
    return net, end


def numbers(state):
    return {name: x for name, x in state.items() if x.is_floating_point()}


def largest_difference(a, b):
    return max((a[name] - b[name]).abs().max().item() for name in numbers(b))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["wvn", "wvn-released", "crt"])
def test_what_is_kept_is_the_mean_of_the_last_epochs(digits, method):
    weights = {}
    plain = make_job(digits, method, how=replace(RECIPE, average=0.0))
    fit_plainly(
        plain, on_epoch=lambda state, record: weights.setdefault(state.epoch, state.weights)
    )
    expected = {
        name: sum(weights[epoch][name] for epoch in (4, 5, 6)) / 3 for name in numbers(weights[6])
    }
    if method == "wvn":  # of unit length, as their mean is not
        expected["head.weight"] /= expected["head.weight"].norm(dim=1, keepdim=True)
    weights_after = {}
    net, _ = fit_plainly(
        make_job(digits, method),
        on_epoch=lambda state, record: weights_after.setdefault(state.epoch, state.weights),
    )
    assert (
        largest_difference(weights_after[5], weights[5]) == 0
    )  # the training itself is not changed
    assert largest_difference(weights_after[6], expected) < 1e-12
    assert largest_difference(weights_after[6], weights[6]) > 1e-4
    body = {
        name: x
        for name, x in weights_after[6].items()
        if method != "crt" or name.startswith("body")
    }
    assert (
        largest_difference(net.state_dict(), body) == 0
    )  # crt trains a new head on the averaged body


@pytest.mark.slow
@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize("method", ["wvn", "crt"])
def test_the_fast_engine_averages_as_the_plain_loop_does(digits, method, stacked):
    jobs, records_of = [make_job(digits, method, seed) for seed in (0, 1)], {}
    expected = []
    for job in jobs:
        how, records = preprocess.Preprocess(job.recipe, job.data, torch.float64), []
        net = copy.deepcopy(job.net)

        def on_epoch(state, record, net=net, how=how, records=records):
            records.append(
                record
                | {f"{title}_error": e for title, e in preprocess.errors(net, digits, how).items()}
            )

        train.fit(net, digits, job.recipe, job.method, seed=job.seed, on_epoch=on_epoch)
        expected.append((net, records))
    fit_many(
        jobs,
        slots=2 if stacked else 1,
        device="cpu",
        dtype=torch.float64,
        stacked=stacked,
        on_epoch=lambda i, record: records_of.setdefault(i, []).append(record),
    )
    for i, (job, (net, records)) in enumerate(zip(jobs, expected, strict=True)):
        assert largest_difference(job.net.state_dict(), numbers(net.state_dict())) < 1e-12
        for ours, theirs in zip(records_of[i], records, strict=True):
            for key, value in theirs.items():
                np.testing.assert_allclose(ours[key], value, rtol=0, atol=1e-12, err_msg=key)


@pytest.mark.slow
@pytest.mark.parametrize("at", [2, 4])  # before the first epoch that counts, and between two
def test_an_average_survives_an_interruption_in_either_engine(digits, at, tmp_path):
    kept = {}
    (end,) = fit_many(
        [make_job(digits, "wvn")],
        device="cpu",
        dtype=torch.float64,
        stacked=True,
        save_every=0,
        on_save=lambda _, state: kept.setdefault(state.epoch, state),
    )
    assert bool(kept[at].mean) == (at > 3)
    checkpoint.write(tmp_path, kept[at])
    state, damaged = checkpoint.latest(tmp_path)
    assert not damaged
    (again,) = fit_many(
        [make_job(digits, "wvn", start=state)], device="cpu", dtype=torch.float64, stacked=True
    )
    assert largest_difference(again.weights, end.weights) == 0
    _, plain = fit_plainly(make_job(digits, "wvn", start=state))
    assert largest_difference(plain.weights, end.weights) < 1e-12


def test_an_average_survives_an_interruption_inside_an_epoch(digits):
    states = []
    _, end = fit_plainly(make_job(digits, "wvn"), on_step=lambda state: states.append(state()))
    inside = next(state for state in states if (state.epoch, state.step) == (5, 2))
    assert inside.mean
    _, again = fit_plainly(make_job(digits, "wvn", start=inside))
    assert largest_difference(again.weights, end.weights) == 0


def test_a_recipe_without_an_average_has_the_identity_it_always_had():
    spec = Spec("digits", method="wvn", profile="long-tail", ratio=10)
    assert "average" not in spec.identity()["recipe"]
    assert Spec("cifar10", recipe="frontier-long").identity()["recipe"]["average"] == 0.25


@pytest.mark.parametrize(("average", "epochs", "expected"), [(0.25, 8, [0] * 6 + [1, 2]), (0.01, 4, [0, 0, 0, 1]),
                                                             (1.0, 3, [1, 2, 3]), (0.0, 3, [0, 0, 0])])  # fmt: skip
def test_how_many_epochs_an_average_is_over(average, epochs, expected):
    how = replace(RECIPE, epochs=epochs, average=average)
    assert [how.epochs_averaged(epoch) for epoch in range(epochs)] == expected
    assert how.epochs_averaged(epochs) == 0  # a head trained anew


@pytest.mark.parametrize("average", [-0.1, 1.5])
def test_a_share_that_cannot_be_is_refused(average):
    with pytest.raises(ValueError, match=r"average: expected a share from 0 to 1"):
        replace(RECIPE, average=average)
