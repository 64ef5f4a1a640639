"""The fast engine against the plain loop: the same trainings, step for step, in float64."""

import copy
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from levelhead_lab.fast import epoch_work, pack, stacked
from levelhead_lab.fast.fit_many import _packs, fit_many
from levelhead_lab.fast.job import Job
from levelhead_lab.fast.precision import Precision
from levelhead_lab.lab import data, load, nets, preprocess, recipe, train
from levelhead_lab.lab.cui2019 import CUI_METHODS
from levelhead_lab.methods import METHODS

pytestmark = pytest.mark.slow  # each trains networks

RECIPE = replace(
    recipe.find_recipe("digits"), epochs=4, milestones=(2, 3), batch=32, flip=True, cutout=4
)


@pytest.fixture(scope="module")
def digits():
    every = data.imbalance(load.digits(), "long-tail", ratio=20, largest=60)
    return replace(every, test=every.test[np.arange(0, 500, 8)])  # each epoch looks at all of them


def job(digits, method, seed, *, net="digits", how=RECIPE):
    built = nets.build(
        net, digits.classes, head=METHODS[method].head, shape=digits.shape, seed=seed
    ).double()
    return Job(built, digits, how, METHODS[method], seed)


def by_plain_loop(job):
    """Return the network and the records, with errors, of the same training by train.fit."""
    net, records = copy.deepcopy(job.net), []
    how = preprocess.Preprocess(job.recipe, job.data, torch.float64)

    def on_epoch(state, record):
        records.append(
            record
            | {f"{title}_error": e for title, e in preprocess.errors(net, job.data, how).items()}
        )

    train.fit(net, job.data, job.recipe, job.method, seed=job.seed, on_epoch=on_epoch)
    return net, records


def largest_difference(a, b):
    return max(
        (x.double() - y.double()).abs().max().item()
        for x, y in zip(a.values(), b.values(), strict=True)
    )


@pytest.fixture(scope="module")
def trained(digits):
    """Jobs, and their networks and records by the plain loop.

    Baseline and focal have different losses, ldam also a different head; wvn projects after the step and wvn-released
    before it; over-sample draws other samples. 201 samples make 7 steps, the last of 9 samples: 28 steps in all.
    """
    assert len(digits.train) == 201
    names = ["baseline", "wvn", "wvn-released", "focal", "over-sample", "ldam"]
    jobs = [job(digits, name, seed) for seed, name in enumerate(names)]
    return jobs, [by_plain_loop(each) for each in jobs]


@pytest.mark.parametrize(
    ("slots", "steps"), [(1, 32), (3, 2), (1, 3)]
)  # 7 steps: in 0, 3 or 2 parts, and the rest
def test_the_fast_engine_equals_the_plain_loop(trained, slots, steps, monkeypatch):
    monkeypatch.setattr(pack, "STEPS_PER_GRAPH", steps)
    jobs = [replace(each, net=copy.deepcopy(each.net)) for each in trained[0]]
    records_of = {}
    states = fit_many(
        jobs,
        slots=slots,
        device="cpu",
        dtype=torch.float64,
        stacked=slots > 1,
        on_epoch=lambda i, record: records_of.setdefault(i, []).append(record),
    )
    for i, (each, state, (net, records)) in enumerate(zip(jobs, states, trained[1], strict=True)):
        learned = {k: v for k, v in net.state_dict().items() if "num_batches" not in k}
        assert largest_difference({k: state.weights[k] for k in learned}, learned) < 1e-12
        assert largest_difference({k: each.net.state_dict()[k] for k in learned}, learned) < 1e-12
        assert len(records_of[i]) == len(records) == 4
        for ours, theirs in zip(records_of[i], records, strict=True):
            assert ours.keys() == theirs.keys()
            for key, value in theirs.items():
                np.testing.assert_allclose(ours[key], value, rtol=0, atol=1e-12, err_msg=key)


def test_the_reference_for_gpu_runs_equals_the_plain_loop(digits):
    from bench.paper import plain_loop

    each = job(digits, "baseline", 3)
    expected, records = by_plain_loop(each)
    assert plain_loop.train([plain_loop.PlainRun(each.net, digits, RECIPE, 3)]) == [
        records[-1]["test_error"]
    ]
    assert largest_difference(each.net.state_dict(), expected.state_dict()) == 0


@pytest.mark.parametrize("name", ["ldam-drw", "crt"])
def test_methods_that_change_during_training_change_when_the_plain_loop_does(
    digits, name, monkeypatch
):
    # ldam-drw: a different loss from progress 0.8 on, and a cosine head; crt: a new head on frozen features, and a
    # learning rate that falls from step to step
    monkeypatch.setattr(pack, "STEPS_PER_GRAPH", 2)
    how = replace(
        RECIPE, epochs=6, cutout=0
    )  # 42 steps and a scale of 30: rounding adds up to 3e-13
    jobs = [job(digits, name, seed, how=how) for seed in (0, 1)]
    expected = [by_plain_loop(each) for each in jobs]
    states = fit_many(jobs, slots=2, device="cpu", dtype=torch.float64, stacked=True)
    for state, (net, _) in zip(states, expected, strict=True):
        learned = {k: v for k, v in net.state_dict().items() if "num_batches" not in k}
        assert largest_difference({k: state.weights[k] for k in learned}, learned) < 1e-12


@pytest.mark.parametrize("stacked", [True, False])
def test_a_bias_weights_of_a_batch_and_deferred_stages_are_those_of_the_plain_loop(
    digits, stacked, monkeypatch
):
    monkeypatch.setattr(pack, "STEPS_PER_GRAPH", 2)
    how = replace(RECIPE, cutout=0, weights="batch", deferred=True, bias="rare")
    names = (
        ["cui-sigmoid-0.99", "re-weighting", "crt", "ldam-drw"]
        if stacked
        else ["re-weighting", "crt"]
    )
    methods = [CUI_METHODS.get(name) or METHODS[name] for name in names]
    jobs = [
        Job(
            nets.build(
                "digits", 10, head=method.head, shape=digits.shape, bias="rare", seed=seed
            ).double(),
            digits,
            how,
            method,
            seed,
        )
        for method in methods
        for seed in range(2 if stacked else 1)
    ]
    expected = [by_plain_loop(each) for each in jobs]
    states = fit_many(
        jobs, slots=8 if stacked else 1, device="cpu", dtype=torch.float64, stacked=stacked
    )
    for state, (net, _) in zip(states, expected, strict=True):
        learned = {k: v for k, v in net.state_dict().items() if "num_batches" not in k}
        assert largest_difference({k: state.weights[k] for k in learned}, learned) < 1e-12


@pytest.mark.parametrize("shortcut", ["A", "B", "pool"])
@pytest.mark.parametrize("training", [True, False])
def test_stacked_residual_networks_equal_the_networks_one_by_one(shortcut, training):
    each = [
        nets.build("resnet32", 4, shortcut=shortcut, seed=seed).double().train(training)
        for seed in range(2)
    ]
    stack = stacked.StackedNets(each[0], 2, torch.device("cpu"), torch.float64, kernels=False)
    x = torch.randn(2, 3, 3, 16, 16, dtype=torch.float64)
    for run, net in enumerate(each):
        for statistic in net.buffers():  # so that evaluation has something to read
            if statistic.is_floating_point():
                torch.nn.init.uniform_(statistic, 0.5, 1.5)
        stack.load(run, net)
    logits = stack.logits(stack.features(x.permute(0, 1, 3, 4, 2), training=training))
    gradient = stack.gradient_rows(torch.autograd.grad(logits.square().sum(), stack.leaves))
    for run, net in enumerate(each):
        by_itself = net(x[run])
        torch.testing.assert_close(logits[run], by_itself, rtol=0, atol=1e-11)
        expected = torch.autograd.grad(by_itself.square().sum(), list(net.parameters()))
        packed = [g.permute(stack.filter_axes) if g.ndim == 4 else g for g in expected]
        torch.testing.assert_close(
            gradient[run], torch.cat([g.reshape(-1) for g in packed]), rtol=1e-9, atol=1e-9
        )
        before = {k: v.clone() for k, v in net.state_dict().items()}
        stack.store(run, net)
        assert (
            largest_difference(
                {k: v for k, v in net.state_dict().items() if "num_batches" not in k},
                {k: v for k, v in before.items() if "num_batches" not in k},
            )
            < 1e-12
        )


def test_jobs_that_differ_in_steps_or_data_are_not_stacked(digits):
    other = data.imbalance(load.digits(), "long-tail", ratio=5, largest=60)
    jobs = [
        job(digits, "baseline", 0),
        job(digits, "under-sample", 0),
        job(other, "baseline", 0),
        job(digits, "focal", 0),
        job(digits, "ldam", 0),
        job(digits, "baseline", 1),
    ]
    packs = [[position for position, _ in pack] for pack in _packs(jobs, lambda job: 2)]
    assert sorted(map(sorted, packs)) == [[0, 5], [1], [2], [3, 4]]


def test_more_jobs_than_slots_are_all_trained(digits):
    how = replace(RECIPE, epochs=1)
    jobs = [job(digits, "baseline", seed, how=how) for seed in range(5)]
    starts = [copy.deepcopy(each.net.state_dict()) for each in jobs]
    seen, ended = [], {}
    states = fit_many(
        jobs,
        slots=2,
        device="cpu",
        dtype=torch.float64,
        stacked=True,
        on_end=ended.__setitem__,
        on_epoch=lambda i, record: seen.append((i, len(ended))),
    )
    assert sorted(i for i, _ in seen) == list(range(5))
    assert (
        max(n for _, n in seen) == 4
    )  # those that ended were handed over before the last was trained
    assert [ended[i] for i in range(5)] == states
    assert all(
        largest_difference(state.weights, start) > 1e-3
        for state, start in zip(states, starts, strict=True)
    )


@pytest.mark.parametrize("name", ["wvn", "ldam-drw", "crt"])
@pytest.mark.parametrize("stacked", [True, False])
def test_a_training_resumes_from_a_kept_state(digits, name, stacked):
    how = replace(RECIPE, epochs=6)

    def jobs(starts=(None, None)):
        return [
            replace(job(digits, name, seed, how=how), start=start)
            for seed, start in enumerate(starts)
        ]

    kept, slots = {}, 2 if stacked else 1
    ends = fit_many(
        jobs(),
        slots=slots,
        device="cpu",
        dtype=torch.float64,
        stacked=stacked,
        save_every=0,
        on_save=lambda i, state: kept.setdefault(i, []).append(state),
    )
    assert [state.epoch for state in kept[1]] == [*range(1, kept[1][-1].epoch + 1)]
    for at in (1, 4):
        seen = []
        again = fit_many(
            jobs([kept[0][at], kept[1][at]]),
            slots=slots,
            device="cpu",
            dtype=torch.float64,
            stacked=stacked,
            on_epoch=lambda i, record: seen.append(record["epoch"]),  # noqa: B023
        )
        assert min(seen) == at + 2
        for end, other in zip(ends, again, strict=True):
            assert largest_difference(end.weights, other.weights) == 0


def test_a_resumed_training_draws_the_same_dropout_masks_next_to_others(digits):
    def jobs(start=None):
        both = [job(digits, "baseline", seed) for seed in (0, 1)]
        for each in both:
            each.net.body = torch.nn.Sequential(each.net.body, torch.nn.Dropout(0.5))
        return [replace(both[0], start=start), both[1]]

    kept = []
    ends = fit_many(
        jobs(),
        slots=2,
        device="cpu",
        dtype=torch.float64,
        save_every=0,
        on_save=lambda i, state: kept.append(state) if i == 0 else None,
    )
    alone = fit_many(jobs(kept[1])[:1], device="cpu", dtype=torch.float64)
    assert kept[1].epoch == 2
    assert largest_difference(ends[0].weights, alone[0].weights) == 0


def test_the_plain_loop_resumes_from_a_kept_state_too(digits):
    how, kept = replace(RECIPE, epochs=4), []
    fit_many(
        [job(digits, "baseline", 0, how=how)],
        device="cpu",
        dtype=torch.float64,
        stacked=True,
        save_every=0,
        on_save=lambda _, state: kept.append(state),
    )
    each = job(digits, "baseline", 0, how=how)
    expected, _ = by_plain_loop(each)
    train.fit(each.net, digits, how, each.method, seed=0, start=kept[1])
    learned = {k: v for k, v in each.net.state_dict().items() if "num_batches" not in k}
    assert largest_difference(learned, {k: expected.state_dict()[k] for k in learned}) < 1e-12
    inside = replace(each, start=replace(kept[1], step=3))
    with pytest.raises(ValueError, match="from the end of an epoch, not from step 3"):
        fit_many([inside], device="cpu", dtype=torch.float64)


def test_early_epochs_need_not_be_evaluated_and_nothing_else_changes(trained, monkeypatch):
    jobs = [replace(trained[0][0], net=copy.deepcopy(trained[0][0].net))]
    records, evaluated, evaluate = [], [], epoch_work.EpochWork.evaluate
    monkeypatch.setattr(
        epoch_work.EpochWork, "evaluate", lambda self: (evaluated.append(self), evaluate(self))
    )
    fit_many(
        jobs,
        device="cpu",
        dtype=torch.float64,
        evaluate_early=False,
        on_epoch=lambda _, record: records.append(record),
    )
    expected = [
        record | ({"test_error": None} if record["epoch"] <= 2 else {})
        for record in trained[1][0][1]
    ]
    assert [record["test_error"] for record in records] == [
        record["test_error"] for record in expected
    ]
    assert len(evaluated) == 2  # of four epochs
    for ours, theirs in zip(records, expected, strict=True):
        np.testing.assert_allclose(ours["norms"], theirs["norms"], rtol=0, atol=1e-12)
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-12)


def test_a_diverging_run_is_named_and_harms_no_other(digits):
    how = replace(RECIPE, epochs=2)
    jobs = [job(digits, "baseline", seed, how=how) for seed in range(2)]
    expected, _ = by_plain_loop(jobs[1])
    with torch.no_grad():
        jobs[0].net.head.weight.fill_(1e300)
    ended = {}
    with pytest.raises(
        ValueError,
        match=r"the loss of run 1 of 2 is nan in epoch 1: .* lower .* 1 of the 2 runs are",
    ):
        fit_many(
            jobs, slots=2, device="cpu", dtype=torch.float64, stacked=True, on_end=ended.__setitem__
        )
    assert list(ended) == [1]
    learned = {k: v for k, v in expected.state_dict().items() if "num_batches" not in k}
    assert largest_difference({k: jobs[1].net.state_dict()[k] for k in learned}, learned) < 1e-12


def test_networks_without_a_stacked_form_are_recognized(digits):
    narrow = nets.build("resnet32", 10)
    small = nets.build("digits", 10, shape=(1, 8, 8))
    wide = nets.build("resnet18-64", 10)
    assert stacked.most_stacked(narrow, 4, kernels=True) == 4
    assert stacked.most_stacked(small, 4, kernels=True) == 4
    assert stacked.most_stacked(wide, 4, kernels=True) == 1  # it is left to cuDNN
    assert stacked.most_stacked(wide, 4, kernels=False) == 4
    imagenet = nets.build("resnet18-64", 10, stem="imagenet")
    assert stacked.most_stacked(imagenet, 4, kernels=False) == 0
    with pytest.raises(
        stacked.UnstackableError, match=r"body\.0 is not a plain 1x1 or 3x3 convolution"
    ):
        stacked.StackedNets(imagenet, 2, torch.device("cpu"), torch.float32, kernels=False)


@pytest.mark.parametrize("slots", [1, 2])
def test_scaling_gradients_changes_nothing_but_their_range(digits, slots):
    scaled = Precision("scaled", torch.float64, largest_gradient=2.0**40)
    names = ["baseline", "ldam"]
    ends = [
        fit_many(
            [job(digits, name, seed) for seed, name in enumerate(names)],
            slots=slots,
            device="cpu",
            dtype=precision,
            stacked=slots > 1,
        )
        for precision in (scaled, torch.float64)
    ]
    for ours, theirs in zip(*ends, strict=True):
        assert largest_difference(ours.weights, theirs.weights) < 1e-12


def test_float16_learns_what_float64_learns(digits):
    losses, how = {}, replace(RECIPE, epochs=2, milestones=(1,))  # half precision is slow on a CPU
    for dtype in (torch.float16, torch.float64):
        records = losses[dtype] = []
        fit_many(
            [job(digits, "wvn", seed, how=how) for seed in (0, 1)],
            slots=2,
            device="cpu",
            dtype=dtype,
            stacked=True,
            on_epoch=lambda _, record, records=records: records.append(record["loss"]),
        )
    np.testing.assert_allclose(losses[torch.float16], losses[torch.float64], rtol=0.04)


def test_zero_slots_are_refused(digits):
    with pytest.raises(ValueError, match="slots: expected at least 1, got 0"):
        fit_many([job(digits, "baseline", 0)], slots=0, device="cpu")


@pytest.mark.parametrize("check", ["check_kernels.py", "check_augment.py"])
def test_the_kernels_equal_torch(check):
    """Compare every kernel, under Triton's interpreter, with torch. `on_another_machine.sh` does it on a GPU."""
    pytest.importorskip("triton")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    script = Path(__file__).with_name(check)
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
