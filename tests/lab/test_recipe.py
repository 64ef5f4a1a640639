from dataclasses import replace

import pytest

from levelhead_lab.lab.recipe import Recipe, find_recipe, presets


def test_kim2020_is_the_released_recipe():
    kim = find_recipe("kim2020")
    assert (kim.epochs, kim.batch, kim.lr, kim.momentum, kim.weight_decay) == (
        180,
        128,
        0.1,
        0.9,
        5e-4,
    )
    assert not kim.nesterov
    assert (kim.milestones, kim.lr_decay, kim.warmup, kim.pad, kim.flip) == (
        (80, 150),
        0.1,
        0,
        4,
        True,
    )
    assert kim.mean == (0.4914, 0.4822, 0.4465)
    assert kim.std == (0.2023, 0.1994, 0.2010)


def test_rates_drops_and_averages_are_where_the_recipes_say():
    kim, cao = find_recipe("kim2020"), find_recipe("cao2019")
    assert [kim.lr_at(epoch) for epoch in (0, 79, 80, 149, 150)] == pytest.approx(
        [0.1, 0.1, 0.01, 0.01, 0.001]
    )
    assert [cao.lr_at(epoch) for epoch in (0, 3, 5, 160, 180)] == pytest.approx(
        [0.02, 0.08, 0.1, 0.001, 1e-5]
    )
    assert [find_recipe(name).first_decay_epoch for name in ("kim2020", "cao2019", "strong")] == [
        80,
        160,
        141,
    ]
    assert [
        find_recipe("frontier-long").epochs_averaged(epoch) for epoch in (599, 600, 799, 800)
    ] == [0, 1, 200, 0]
    assert kim.stretched_to(18).milestones == (8, 15)


def test_strong_is_kim2020_with_cosine_and_cutout():
    kim, strong = find_recipe("kim2020"), find_recipe("strong")
    assert strong == replace(
        kim, name="strong", epochs=200, schedule="cosine", milestones=(), cutout=16
    )


def test_frontier_is_strong_twice_as_long_with_trivial_augment_for_any_images():
    strong, frontier = find_recipe("strong"), find_recipe("frontier")
    assert frontier == replace(
        strong, name="frontier", epochs=400, augment="trivial", mean=None, std=None
    )


def test_tiny_is_a_short_kim2020_with_cosine():
    long, tiny = find_recipe("kim2020-64"), find_recipe("tiny")
    assert tiny == replace(
        long,
        name="tiny",
        epochs=long.epochs // 6,
        schedule="cosine",
        milestones=(),
        mean=tiny.mean,
        std=tiny.std,
    )


def test_cosine_falls_from_lr_to_zero():
    rates = [
        replace(find_recipe("kim2020"), schedule="cosine", epochs=10).lr_at(epoch)
        for epoch in range(11)
    ]
    assert rates[0] == pytest.approx(0.1)
    assert rates[5] == pytest.approx(0.05)
    assert rates[10] == pytest.approx(0)
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize("name", presets())
def test_shortened_recipes_keep_their_shape(name):
    whole = find_recipe(name)
    half = whole.stretched_to(whole.epochs // 2)
    late = (0.4, 0.8) if whole.schedule == "cosine" else (0.5, 1 - 1 / half.epochs)
    assert [
        half.lr_at(e) for e in (half.warmup, *(int(x * half.epochs) for x in late))
    ] == pytest.approx(
        [whole.lr_at(e) for e in (whole.warmup, *(int(x * whole.epochs) for x in late))]
    )
    assert whole.stretched_to(None) is whole.stretched_to(whole.epochs) is whole


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "epochs = 1\nbatch = 2\nlr = 0.1\nlearning = 2",
            "recipe mine: unknown key 'learning'; the keys are augment",
        ),
        ("epochs = 1\nbatch = 2", "recipe mine: lr is missing"),
        ("epochs = 0\nbatch = 2\nlr = 1", "epochs: expected at least 1, got 0"),
        ("epochs = 1.5\nbatch = 2\nlr = 1", "epochs: expected a whole number, got 1.5"),
        (f"epochs = 1\nbatch = 2\nlr = {10**400}", "lr: expected a number, got 1000"),
        ("epochs = 1\nbatch = 2\nlr = inf", "lr: expected a number, got inf"),
        ("epochs = 1\nbatch = 2\nlr = -1", "lr: expected at least 0, got -1"),
        (
            "epochs = 1\nbatch = 2\nlr = 1\nschedule = 'zigzag'",
            "schedule: expected step or cosine, got 'zigzag'",
        ),
        (
            "epochs = 1\nbatch = 2\nlr = 1\naugment = 'some'",
            "augment: expected none or trivial, got 'some'",
        ),
        ("epochs = 1\nbatch = 2\nlr = 1\ncutout = -2", "cutout: expected at least 0, got -2"),
        (
            "epochs = 1\nbatch = 2\nlr = 1\ncutout = 3",
            "cutout: expected an even number of pixels, got 3",
        ),
        (
            "epochs = 9\nbatch = 2\nlr = 1\nmilestones = [4, -5]",
            "milestones: expected epochs from 0 to 8, got -5",
        ),
        (
            "epochs = 9\nbatch = 2\nlr = 1\nmilestones = [4, 9]",
            "milestones: expected epochs from 0 to 8, got 9",
        ),
        (
            "epochs = 9\nbatch = 2\nlr = 1\nwarmup = 10",
            "warmup: expected at most the 9 epochs, got 10",
        ),
        (
            "epochs = 9\nbatch = 2\nlr = 1\nschedule = 'cosine'\nmilestones = [4]",
            "milestones: .* schedule to 'step'",
        ),
        (
            "epochs = 1\nbatch = 2\nlr = 1\nmomentum = 1.5",
            "momentum: expected less than 1, got 1.5",
        ),
        ("epochs = 1\nbatch = 2\nlr = 1\nmean = [0.5]", "expected mean and std together"),
        ("epochs = ", "mine.toml: not a TOML file"),
    ],
)
def test_a_recipe_file_that_is_wrong(tmp_path, text, message):
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        find_recipe(tmp_path / "mine.toml")


def test_a_recipe_file(tmp_path):
    (tmp_path / "mine.toml").write_text("epochs = 3\nbatch = 5\nlr = 0.2\nmilestones = [2]\n")
    assert find_recipe(tmp_path / "mine.toml") == Recipe(
        "mine", epochs=3, batch=5, lr=0.2, milestones=(2,)
    )
    with pytest.raises(FileNotFoundError):
        find_recipe(tmp_path / "gone.toml")
