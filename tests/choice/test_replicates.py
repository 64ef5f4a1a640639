"""The choice on a block of resamples is the choice on each of them, and resamples keep the size of each class."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from levelhead import gamma_path
from levelhead.choice import replicate_groups
from levelhead.choice.cross_fit import ResampledChoice
from levelhead.choice.objective import Objective, Pull, ShareMismatch
from levelhead.choice.replicate_groups import (
    HOST,
    BlockShares,
    DeviceTables,
    Groups,
    choose_by_shares,
    group_predictions,
    possible_by_shares,
)
from levelhead.choice.resample import SAME_VALUE, Grid
from levelhead.core.counts import long_tail
from levelhead.path.envelope import compute_envelope
from levelhead.support.arrays import to_numpy


@pytest.mark.parametrize(
    "tables", [HOST, DeviceTables(torch.device("cpu"))], ids=["host", "device"]
)
@pytest.mark.parametrize("seed", range(24))
def test_a_block_of_resamples_chooses_as_each_of_them_does(seed, tables):
    rng = np.random.default_rng(seed)
    classes, n, free = int(rng.integers(2, 9)), int(rng.integers(3, 400)), None
    labels = rng.integers(classes, size=n)
    logits = 2 * rng.normal(size=(n, classes)) + 1 + 2 * np.eye(classes)[labels]
    path = gamma_path(
        np.round(logits) if seed % 3 == 0 else logits,  # ties
        labels,
        rng.integers(1, 1000, classes),
        rule=("rescale", "shift")[seed % 2],
        range=(-1, 2) if seed % 5 == 0 else (0, 2),
    )
    times = np.stack([_draw_within_classes(labels, rng) for _ in range(20)])
    unlabelled = seed % 4 == 1
    if unlabelled:
        changes = compute_envelope(rng.normal(size=(50, classes)), path.rule, path.range)
        free = rng.multinomial(50, np.full(50, 1 / 50), size=20).astype(np.float64)
    else:
        changes = None if seed % 4 == 2 else path.envelope
    objective = Objective(
        path,
        np.bincount(labels, minlength=classes) / n,
        changes,
        unlabelled=unlabelled,
        most=(1000, 20, 7)[seed % 3],
        pull=Pull(0.5, 0.3) if seed % 7 < 3 else None,
        metric="error" if seed % 6 == 5 else "balanced_error",
    )
    if objective.metric == "balanced_error":
        objective = replace(objective, target=np.full(classes, 1 / classes))
    strength = (20.0, np.inf, 0.0)[seed % 3]
    choice = ResampledChoice(objective, float(rng.random()), strength, tables)
    drawn = None if free is None else tables.place(in_groups(choice.free, free))
    gammas, errors, _ = choice.choose(tables.place(in_groups(choice.groups, times)), drawn)
    first, last = choice.span
    for i, row in enumerate(times):
        error = objective.error(row)
        np.testing.assert_allclose(errors[i], error[first : last + 1], atol=1e-12)
        other = None if free is None else free[i]
        values = objective.values(error, row, unlabelled_times=other, strength=strength)
        assert gammas[i] == objective.grid.choose(values)[0]


def in_groups(groups, times):
    """Return how often each group is drawn if each sample is drawn so often."""
    return np.stack([np.bincount(groups.member, row, len(groups.sizes)) for row in times])


def _draw_within_classes(labels, rng):
    times = np.zeros(len(labels))
    for c in np.unique(labels):
        members = np.flatnonzero(labels == c)
        np.add.at(times, rng.choice(members, len(members)), 1)
    return times


@pytest.mark.parametrize("seed", range(6))
def test_no_resample_of_many_samples_chooses_elsewhere_than_where_it_can(seed):
    rng = np.random.default_rng(seed)
    classes, n = (2, 10, 40)[seed % 3], 4000
    labels = rng.choice(classes, n, p=rng.dirichlet(np.full(classes, 5.0)))
    counts = long_tail(1000, classes, 100)
    logits = 2 * rng.normal(size=(n, classes)) + 0.5 * np.log(counts) + 4 * np.eye(classes)[labels]
    path = gamma_path(logits, labels, counts, rule=("rescale", "shift")[seed % 2])
    target = np.full(classes, 1 / classes)
    objective = Objective(
        path, target, path.envelope, most=300, pull=Pull(0.5, 0.3) if seed % 2 else None
    )
    choice = ResampledChoice(objective, objective.choose(20.0)[0], 20.0)
    first, last = choice.span
    assert last - first < 250  # part of the range is left out
    assert len(choice.groups.sizes) < 0.9 * n
    times = np.stack([_draw_within_classes(labels, rng) for _ in range(30)])
    gammas, errors, _ = choice.choose(in_groups(choice.groups, times))
    for row, gamma, error in zip(times, gammas, errors, strict=True):
        alone = objective.error(row)
        np.testing.assert_allclose(error, alone[first : last + 1], atol=1e-12)
        assert gamma == objective.grid.choose(objective.values(alone, row, strength=20.0))[0]


@pytest.mark.parametrize("least", [2, 16, 1000, "device"])
def test_resamples_keep_the_size_of_each_class_and_draw_every_sample_alike(least, monkeypatch):
    tables = DeviceTables(torch.device("cpu")) if least == "device" else HOST
    if tables is HOST:
        monkeypatch.setattr(
            replicate_groups, "LARGE_GROUP", least
        )  # groups drawn as one number: nearly all, one, none
    monkeypatch.setattr(replicate_groups, "MOST_SAMPLES", 0.0)
    labels = np.array([3] * 5 + [0] * 2 + [1] * 40)
    key = np.concatenate([[0, 0, 0, 1, 1], [0, 0], np.repeat([0, 1, 2], [20, 15, 5])])
    groups = Groups.of(labels, [key], np.arange(47) == 46)
    assert groups.sizes.tolist() == [2, 20, 3, 15, 2, 4, 1]
    assert groups.stratum.tolist() == [0, 1, 3, 1, 3, 1, 1]
    drawn = to_numpy(tables.draw(groups, 20_000, np.random.default_rng(1))).copy()
    for c in np.unique(labels):
        assert (drawn[:, groups.stratum == c].sum(axis=1) == (labels == c).sum()).all()
    spread = np.sqrt(groups.sizes * (1 - groups.sizes / np.bincount(labels)[groups.stratum]))
    assert (np.abs(drawn.mean(axis=0) - groups.sizes) <= 5 * spread / np.sqrt(20_000)).all()
    np.testing.assert_allclose(drawn.std(axis=0), spread, rtol=0.03)
    together = np.cov(drawn[:, 1], drawn[:, 3])[0, 1]  # of a multinomial: -n p q
    assert together == pytest.approx(-40 * (20 / 40) * (15 / 40), rel=0.1)
    singles = Groups.of(labels, [], np.ones(47, bool))
    samples = to_numpy(tables.draw(singles, 20_000, np.random.default_rng(2)))
    assert np.abs(samples.mean(axis=0) - 1).max() < 5 * np.sqrt(1 / 20_000)
    assert samples[:, 2:42].var(axis=0).mean() == pytest.approx(1 - 1 / 40, abs=0.01)
    # Replicates so far apart are drawn by the same random numbers, one by the fractions that the other left.
    apart, more = replicate_groups.DRAWN_AT_ONCE // 47, samples[:, 2:42] - 1
    together = (more[:-apart] * more[apart:]).sum(axis=1)
    assert abs(together.mean()) < 5 * together.std() / np.sqrt(len(together))


def test_the_seed_alone_decides_the_replicates():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=200)
    objective = Objective(
        gamma_path(rng.normal(size=(200, 3)), labels, [9, 3, 1]), np.full(3, 1 / 3), most=100
    )
    one, again, other = (
        np.concatenate(
            [
                block.gammas
                for block in ResampledChoice(objective, 0.5, 0.0).blocks(
                    600, np.random.default_rng(s)
                )
            ]
        )
        for s in (4, 4, 5)
    )
    assert np.array_equal(one, again)
    assert len(one) == 600
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_chosen_as_one_by_one(seed):
    rng = np.random.default_rng(seed)
    for _ in range(100):
        size = int(rng.integers(1, 12))
        edges = (
            np.linspace(-1, 2, size + 1),
            np.concatenate([[0, 2], rng.integers(0, 20, size) / 10]),
            np.concatenate([[0, 2, 0.5, 0.5 + 1e-10, np.nextafter(0, 1)], 2 * rng.random(size)]),
            np.concatenate([np.linspace(0, 2, size + 1), [np.nextafter(0, 1)]]),
        )[seed]
        grid = Grid(np.unique(edges))
        values = rng.integers(0, rng.choice([1, 3]), (7, len(grid.middles))) / 7
        values[rng.random(values.shape) < 0.1] = np.inf
        assert np.array_equal(grid.choose_rows(values), [grid.choose(row)[0] for row in values])
        curves = [grid.curve(row) for row in values]
        middles = [curve.middle(curve.plateau(SAME_VALUE)) for curve in curves]
        assert np.array_equal(grid.choose_rows(values, prefer_zero=False), middles)


def test_shares_of_a_block_are_those_of_each_resample_on_any_part_of_the_range():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(80, 5))
    path = gamma_path(logits, rng.integers(5, size=80), [90, 30, 9, 3, 1], rule="shift")
    mismatch = ShareMismatch(
        path.envelope, rng.dirichlet(np.ones(5)), Grid.between(path.envelope.gamma, path.range, 40)
    )
    times = rng.multinomial(80, np.full(80, 1 / 80), size=6)
    for first, last in ((0, 39), (7, 20), (12, 12)):
        found = BlockShares(mismatch, (first, last)).between(first, last, times / 80)
        truth = [mismatch.values(row.astype(np.float64))[first : last + 1] for row in times]
        np.testing.assert_allclose(found, truth, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_no_resample_without_labels_chooses_elsewhere_than_where_it_can(seed):
    rng = np.random.default_rng(seed)
    classes, n = (2, 30)[seed % 2], 3000
    counts = long_tail(1000, classes, 100)
    logits = (
        2 * rng.normal(size=(n, classes))
        + 0.5 * np.log(counts)
        + 4 * np.eye(classes)[rng.integers(classes, size=n)]
    )
    path = gamma_path(logits, np.zeros(n, int), counts, rule=("rescale", "shift")[seed // 2])
    mismatch = ShareMismatch(
        path.envelope,
        np.full(classes, 1 / classes),
        Grid.between(path.envelope.gamma, path.range, 300),
    )
    first, last = possible_by_shares(mismatch)
    assert last - first < 270  # part of the range is left out
    groups, few = group_predictions(mismatch.changes, mismatch.grid, first, last)
    times = rng.multinomial(n, np.full(n, 1 / n), size=30).astype(np.float64)
    part = replace(mismatch, changes=few, grid=Grid(mismatch.grid.edges[first : last + 2]))
    found = BlockShares(part, (0, last - first)).between(
        0, last - first, in_groups(groups, times) / n
    )
    for row, values in zip(times, found, strict=True):
        truth = mismatch.values(row)
        np.testing.assert_allclose(values, truth[first : last + 1], atol=1e-12)
        assert first <= np.argmin(truth) <= last
    gammas = choose_by_shares(mismatch, 300, np.random.default_rng(0))
    drawn = [mismatch.grid.choose(mismatch.values(row))[0] for row in times]
    assert abs(np.mean(gammas) - np.mean(drawn)) < 5 * np.std(drawn) / np.sqrt(30)
