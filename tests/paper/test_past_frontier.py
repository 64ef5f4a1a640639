"""What was tried to go past the recipe `frontier`."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from bench.paper import past_frontier as bench
from levelhead_lab.lab import nets
from levelhead_lab.lab.epoch_plan import draw_plan
from levelhead_lab.lab.preprocess import Preprocess
from levelhead_lab.lab.recipe import find_recipe
from levelhead_lab.methods import METHODS
from levelhead_lab.paper.beyond_tables import VARIANTS, past_frontier_table
from levelhead_lab.runs.run import run
from levelhead_lab.runs.spec import Spec


def test_a_longer_recipe_ends_its_cosine_at_its_own_end():
    recipe = bench.longer_recipe(1e-3, 800)
    assert (recipe.epochs, recipe.weight_decay, recipe.augment) == (800, 1e-3, "trivial")
    assert recipe.lr_at(400) == pytest.approx(recipe.lr / 2)


def test_the_mean_of_states_leaves_counters_alone():
    mean = bench.Mean()
    for value in (1.0, 2.0, 6.0):
        mean.add({"w": torch.tensor([value, 0.0]), "steps": torch.tensor(int(value))})
    assert mean.values is not None
    assert mean.values["w"].tolist() == pytest.approx([3.0, 0.0])
    assert mean.values["steps"].item() == 1


def test_errors_reached_are_those_of_the_adjusted_logits():
    rng = np.random.default_rng(0)
    labels, counts = rng.integers(4, size=300), np.array([100, 40, 20, 5])
    logits = rng.normal(size=(300, 4)) + 2 * np.eye(4)[labels] + np.log(counts)
    errors = bench.reached(logits, labels, counts)
    assert errors["error"] == pytest.approx((logits.argmax(axis=1) != labels).mean(), abs=1e-6)
    for source in ("match_prior", "best_on_test"):
        moved = logits + errors["shift"][source]["gamma"] * np.log(100 / counts)
        scaled = logits * (100 / counts) ** errors["rescale"][source]["gamma"]
        for rule, scores in (("shift", moved), ("rescale", scaled)):
            # the strength is rounded to four digits, which may move a sample
            assert errors[rule][source]["error"] == pytest.approx(
                (scores.argmax(axis=1) != labels).mean(), abs=1 / 300
            )


@pytest.mark.parametrize("augmented", [False, True])
def test_leveled_statistics_are_those_of_images_drawn_from_all_classes_alike(augmented):
    spec = Spec("digits", profile="long-tail", ratio=10)
    data, recipe = spec.load(), replace(find_recipe("digits"), cutout=2)
    net = nets.build("digits", data.classes, shape=data.shape, seed=0)
    before = {name: x.clone() for name, x in net.state_dict().items()}
    bench.level_statistics_(net, data, recipe, augmented=augmented, seed=3, batch=10_000)
    plan = draw_plan(
        data.train.labels, METHODS["over-sample"], recipe, seed=3, epoch=0, progress=0.0
    )
    share = np.bincount(data.train.labels[plan.indices.numpy()]) / len(plan)
    assert (
        abs(share - 1 / data.classes).max() < 0.04
    )  # counts differ by a factor of 10, the draw does not
    preprocess, images = Preprocess(recipe, data), torch.from_numpy(data.train.images)
    x = (
        preprocess.augmented(images, plan)
        if augmented
        else preprocess.standardized(images[plan.indices])
    )
    convolution = next(module for module in net.modules() if isinstance(module, torch.nn.Conv2d))
    norm = next(module for module in net.modules() if isinstance(module, torch.nn.BatchNorm2d))
    with torch.no_grad():
        expected = convolution(x)
    assert norm.running_mean.numpy() == pytest.approx(
        expected.mean(dim=(0, 2, 3)).numpy(), abs=1e-5
    )
    assert norm.running_var.numpy() == pytest.approx(expected.var(dim=(0, 2, 3)).numpy(), rel=1e-4)
    after = net.state_dict()
    changed = {
        name.rpartition(".")[2] for name, x in after.items() if not torch.equal(x, before[name])
    }
    assert changed <= {"running_mean", "running_var", "num_batches_tracked"}
    assert not net.training
    assert norm.momentum == 0.1


@pytest.mark.slow
def test_the_network_as_trained_is_that_of_the_run_itself(tmp_path):
    spec = Spec("digits", method="balanced-softmax", profile="long-tail", ratio=10, epochs=2)
    spec = replace(spec, engine="fast")
    (entry,) = bench.try_all([spec], [spec.resolve_recipe()], device="cpu")
    first = entry["tried"][0]
    assert (first["weights"], first["statistics"], first["views"]) == ("last", "as trained", 1)
    trained = run(spec, tmp_path, device="cpu")
    assert first["error"] == pytest.approx(trained.result["test_error"], abs=1e-6)
    assert entry["data_sha256"]["train"] == trained.facts["split_sha256"]["train"]
    assert {row["views"] for row in entry["tried"]} == {1, 2}
    assert entry["epochs"] == 2


def test_the_table_of_what_was_tried_has_a_column_per_network():
    errors = {"match_prior": {"error": 0.15}, "best_on_test": {"error": 0.14}}
    rows = [
        {
            "weights": w,
            "statistics": s,
            "views": v,
            "error": 0.2,
            "rescale": errors,
            "shift": errors,
        }
        for w, s, v in VARIANTS.values()
    ]
    run_ = {"data": "cifar10", "method": "baseline", "weight_decay": 5e-4, "tried": rows}
    lines = past_frontier_table([run_, {**run_, "weight_decay": 1e-3}]).splitlines()
    assert lines[0] == "|  | CIFAR-10, Baseline, 0.0005 | CIFAR-10, Baseline, 0.001 |"
    assert lines[2] == "| alone | 20.00 | 20.00 |"
    assert lines[3] == "| as trained | 15.00 | 15.00 |"
    assert len(lines) == 3 + len(VARIANTS)
