"""A `Tuned`: what it does to scores of every kind, and what it says of itself."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import levelhead as lh
from levelhead.core.metrics import METRICS
from levelhead.core.rules import RULES
from levelhead.show.plot import save_plot
from levelhead.support.logits import log_softmax
from levelhead.support.terminal import drawn_width

from .made import COUNTS, calibrated

NORMS = np.array([4.0, 3.0, 2.0, 1.0])
ROOT = Path(__file__).parents[2]
LOGITS, LABELS = calibrated(0, 400)
LOGITS = LOGITS + 8  # positive, as a rule that multiplies wants them


def rule_of(name: str):
    return lh.rules.Tau(norms=NORMS) if name == "tau" else name


def softmax(logits):
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


@pytest.fixture(scope="module", params=RULES)
def tuned(request) -> lh.Tuned:
    return lh.tune(LOGITS, LABELS, COUNTS, rule=rule_of(request.param))


# -- What it does --------------------------------------------------------------------------------


def test_apply_is_the_formula_of_its_adjustment(tuned):
    by_hand = LOGITS * tuned.adjustment.scale + tuned.adjustment.offset
    np.testing.assert_allclose(tuned.apply(LOGITS), by_hand)
    np.testing.assert_allclose(tuned.apply(LOGITS.astype(np.float32)), by_hand, rtol=1e-5)
    assert tuned.apply(LOGITS.astype(np.float32)).dtype == np.float32
    assert tuned.apply(LOGITS.astype(np.float16)).dtype == np.float32


def test_a_rule_of_one_strength_does_what_its_formula_says(tuned):
    ratio = COUNTS.max() / COUNTS
    formulas = {
        "shift": lambda s: LOGITS + s * np.log(ratio),
        "rescale": lambda s: LOGITS * ratio**s,
        "tau": lambda s: LOGITS / NORMS**s,
    }
    assert (tuned.strength is not None) == (tuned.rule in formulas)
    if tuned.strength is not None:
        np.testing.assert_allclose(tuned.apply(LOGITS), formulas[tuned.rule](tuned.strength))


def test_only_rules_that_multiply_scale_and_only_those_that_add_shift(tuned):
    rule = RULES[tuned.rule]
    assert tuned.adjustment.multiplies == rule.multiplies
    assert tuned.adjustment.adds == rule.adds


def test_single_rows_and_more_axes_are_applied_as_rows_are(tuned):
    rows = tuned.apply(LOGITS)
    np.testing.assert_allclose(tuned.apply(LOGITS[7]), rows[7])
    np.testing.assert_allclose(tuned.apply(LOGITS.reshape(20, 20, 4)), rows.reshape(20, 20, 4))
    np.testing.assert_allclose(tuned.apply(LOGITS[7].tolist()), rows[7])
    for shape in ((0, 4), (2, 0, 4), (0, 3, 4)):
        assert tuned.apply(np.zeros(shape)).shape == shape
        assert tuned.apply(torch.zeros(shape)).shape == shape


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_tensors_stay_tensors_and_have_the_scores_of_arrays(tuned, dtype):
    tensor = torch.tensor(LOGITS, dtype=dtype)
    adjusted = tuned.apply(tensor)
    assert isinstance(adjusted, torch.Tensor)
    assert adjusted.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    np.testing.assert_allclose(adjusted, tuned.apply(tensor.double().numpy()), rtol=1e-5, atol=1e-5)
    assert tuned.apply(tensor[3]).shape == (4,)
    assert tuned.apply(tensor.reshape(4, 100, 4)).shape == (4, 100, 4)


def test_an_adjusted_head_has_the_scores_of_adjusted_logits(tuned):
    head = lh.Head(np.random.default_rng(1).normal(size=(4, 6)), np.arange(4.0))
    features = np.random.default_rng(2).normal(size=(9, 6))
    np.testing.assert_allclose(
        lh.adjust(head, tuned).logits(features), tuned.apply(head.logits(features))
    )


def test_the_inverse_takes_scores_back(tuned):
    back = tuned.adjustment.inverse().scores(tuned.apply(LOGITS))
    np.testing.assert_allclose(back, LOGITS, rtol=1e-9)


def test_gains_are_those_of_predictions_that_were_not_fitted_on(tuned):
    """A fit on all samples sees each of them; the tables are of fits without it, so they may differ."""
    before = LOGITS.argmax(axis=1)
    sizes = np.bincount(LABELS)
    right = np.bincount(LABELS[before == LABELS], minlength=4)
    np.testing.assert_array_equal(tuned.evidence.before.right, right)
    np.testing.assert_array_equal(tuned.evidence.after.sizes, sizes)
    inside = tuned.apply(LOGITS).argmax(axis=1)
    fitted_on = np.bincount(LABELS[inside == LABELS], minlength=4)
    assert np.abs(tuned.evidence.after.right - fitted_on).max() <= 0.1 * sizes.max()


@pytest.mark.parametrize("rule", ["offsets", "shift"])
@pytest.mark.parametrize("tensor", [False, True])
def test_probabilities_are_adjusted_by_their_logarithms(rule, tensor):
    probabilities = softmax(LOGITS)
    tuned = lh.tune(probabilities, LABELS, COUNTS, rule=rule, kind="probabilities")
    scores = torch.tensor(probabilities) if tensor else probabilities
    by_hand = np.log(probabilities) + tuned.adjustment.offset
    np.testing.assert_allclose(tuned.apply(scores), by_hand, rtol=1e-6)
    np.testing.assert_allclose(tuned.apply(scores[5]), by_hand[5], rtol=1e-6)
    with pytest.raises(lh.LevelheadError, match="scores: expected probabilities, from 0 to 1"):
        tuned.apply(scores * 9)
    with pytest.raises(lh.LevelheadError, match="scores: expected probabilities, from 0 to 1"):
        tuned.apply(scores - 0.5)


def test_a_probability_of_0_stays_the_lowest():
    probabilities = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]])
    tuned = lh.tune(softmax(LOGITS), LABELS, COUNTS, kind="probabilities")
    for scores_of in (probabilities, torch.tensor(probabilities)):
        scores = np.asarray(tuned.apply(scores_of))
        assert np.isfinite(scores).all()
        assert scores.argmax(axis=1).tolist() == [0, 3]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_narrow_probabilities_are_widened_before_their_logarithm(dtype):
    """The least number of float16 is 6e-5, and an offset of 12 is more than its logarithm."""
    adjustment = lh.Adjustment.adding([0, 0, 12])
    tuned = lh.Tuned("offsets", adjustment, evidence=None, kind="probabilities")
    certain = torch.tensor([[1, 0, 0], [0, 1, 0]], dtype=dtype)
    scores = tuned.apply(certain)
    assert scores.argmax(dim=1).tolist() == [0, 1]
    np.testing.assert_allclose(scores, tuned.apply(certain.float().numpy()), rtol=1e-6)
    near = torch.tensor([[0.7, 0.2, 0.1]]).to(torch.bfloat16)
    by_hand = np.log(near.double().numpy()) + adjustment.offset
    np.testing.assert_allclose(tuned.apply(near), by_hand, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_votes_of_zero_have_the_same_scores_as_a_tensor_and_as_an_array(dtype):
    rng = np.random.default_rng(0)
    votes = np.stack([rng.multinomial(10, row) for row in softmax(LOGITS)]) / 10
    tuned = lh.tune(votes, LABELS, COUNTS, kind="probabilities")
    assert tuned.adjustment.smoothing > 0
    of_tensor = tuned.apply(torch.tensor(votes, dtype=dtype))
    assert of_tensor.dtype == dtype
    np.testing.assert_allclose(of_tensor, tuned.apply(votes), atol=1e-5)


@given(st.integers(0, 1000))
@settings(max_examples=20)
def test_masked_scores_stay_the_lowest(seed):
    rng = np.random.default_rng(seed)
    tuned = lh.Tuned("offsets", lh.Adjustment(np.ones(4), rng.normal(size=4)), None)
    masked = rng.random((30, 4)) < 0.3
    masked[:, rng.integers(4)] = False
    plain = rng.normal(size=(30, 4))
    scores = tuned.apply(np.where(masked, -np.inf, plain))
    truth = np.where(masked, -np.inf, plain + tuned.adjustment.offset)
    assert np.array_equal(scores.argmax(axis=1), truth.argmax(axis=1))
    assert not np.isnan(scores).any()


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (
            np.ones((3, 5)),
            r"scores: expected \[..., 4\], a score for each class, got shape \[3, 5\]",
        ),
        (np.ones(()), r"scores: expected \[..., 4\]"),
        (torch.ones(2, 3), r"scores: expected \[..., 4\]"),
        ([["a"] * 4], "scores: expected numbers, got"),
        ([[1.0] * 4, [1.0] * 3], "expected an array of one shape, got rows of different lengths"),
    ],
)
def test_scores_of_another_shape_are_refused(tuned, scores, message):
    with pytest.raises(lh.LevelheadError, match=message):
        tuned.apply(scores)


def test_a_list_of_tensors_with_gradients_is_adjusted_as_their_stack(tuned):
    rows = [torch.tensor(row, requires_grad=True) for row in LOGITS[:30]]
    np.testing.assert_array_equal(tuned.apply(rows), tuned.apply(LOGITS[:30]))


# -- What it says --------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [lambda scores: scores, log_softmax])
def test_probabilities_are_refused_by_what_was_tuned_on_their_logits(scale):
    tuned = lh.tune(scale(LOGITS), LABELS, COUNTS)
    probabilities = np.exp(log_softmax(LOGITS))
    expected = f"scores: it was tuned on {tuned.kind}, and these are probabilities"
    with pytest.raises(lh.LevelheadError, match=expected):
        tuned.apply(probabilities)
    with pytest.raises(lh.LevelheadError, match=expected):
        tuned.apply(probabilities.astype(np.float32).reshape(-1, 10, 4))
    # Few rows of logits may sum to 1 by accident.
    np.testing.assert_array_equal(tuned.apply([0.25] * 4), tuned.adjustment.offset + 0.25)


def test_one_line_says_rule_source_metric_gain_and_verdict(tuned):
    line = str(tuned)
    assert "\n" not in line
    assert line.startswith(RULES[tuned.rule].title)
    before, after = (
        f"{value:.1%}" for value in (tuned.evidence.value_before, tuned.evidence.value)
    )
    assert f"balanced error {before} -> {after}, gain {100 * tuned.gain:.1f} points" in line
    assert "chosen on held-out (400 samples)" in line
    assert tuned.verdict in line
    assert repr(tuned) == f"Tuned({line})"
    assert (tuned.strength is not None) == ("at strength" in line)


@pytest.mark.parametrize("metric", METRICS)
def test_a_summary_shows_every_class_before_and_after(metric):
    cost = 1 - np.eye(4) if metric == "cost" else None
    tuned = lh.tune(
        LOGITS,
        LABELS,
        COUNTS,
        metric=lh.Goal(metric, cost=cost),
        names=["ant", "cat", "elk", "fox"],
    )
    lines = tuned.summary().splitlines()
    before, after = tuned.tables
    row = next(line for line in lines if line.startswith("class 3 (fox)"))
    assert f"{before.recall[3]:.1%} -> {after.recall[3]:6.1%}" in row
    assert f"{before.share[3]:.1%} -> {after.share[3]:6.1%}" in row
    accuracy = next(line for line in lines if line.startswith("accuracy  "))
    assert f"{before.accuracy:.1%} -> {after.accuracy:6.1%}" in accuracy
    assert METRICS[metric].title in lines[0]
    assert tuned.verdict in lines[0]


def test_columns_of_a_summary_stand_below_each_other_whatever_the_names():
    names = ["cat", "猫头鹰", "e\u0301mu", "owl"]  # a wide sign takes two places, an accent none
    lines = lh.tune(LOGITS, LABELS, COUNTS, names=names).summary().splitlines()
    rows = [line.partition("%")[0] for line in lines if line.startswith("class ") and "%" in line]
    assert len(rows) == 4
    assert len({drawn_width(row) for row in rows}) == 1


def test_of_many_classes_a_summary_shows_those_that_change_most():
    logits, labels = calibrated(1, 2000, np.linspace(1000, 10, 40).astype(int))
    lines = lh.tune(logits, labels, np.linspace(1000, 10, 40).astype(int)).summary().splitlines()
    assert sum(line.startswith("class ") for line in lines) == 31  # a title, and 30 of 40
    assert lines[-1] == "and 10 classes that change less"


def test_a_class_that_is_never_right_is_named_wherever_the_choice_is_told():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [300, 60, 6])
    logits = 3 * np.eye(3)[labels] + rng.normal(size=(366, 3)) + [1.0, 0.0, 0.0]
    logits[:, 2] = -50.0  # whatever the sample is
    tuned = lh.tune(logits, labels, metric="error", names=["ant", "bee", "cat"])
    assert tuned.evidence.never_right.tolist() == [2]
    words = "never right, before or after: class 2 (cat); too few samples, or no signal in"
    for text in (str(tuned), tuned.summary(), tuned._repr_html_()):
        assert words in text
    row = next(line for line in tuned.summary().splitlines() if line.startswith("class 2 (cat)"))
    assert row.endswith("(never right)")


def test_only_a_class_with_samples_is_never_right():
    tables = lh.Tables(np.array([9.0, 0, 0, 0]), np.array([9.0, 9, 1, 0]), np.array([9.0, 9, 9, 0]))
    later = lh.Tables(np.array([8.0, 1, 0, 0]), np.array([9.0, 9, 1, 0]), np.array([9.0, 9, 9, 0]))
    evidence = lh.Evidence(METRICS["error"], tables, later, 0.1, 0.01, 5, 27)
    assert evidence.never_right.tolist() == [2]
    assert "never right" not in lh.tune(LOGITS, LABELS, COUNTS).summary()


def test_of_several_labels_those_that_are_never_found_are_named():
    rng = np.random.default_rng(0)
    labels = (rng.random((300, 2)) < [0.5, 0.02]).astype(int)
    logits = np.stack([4 * labels[:, 0] - 2 + rng.normal(size=300), np.full(300, -9.0)], axis=1)
    tuned = lh.tune_labels(logits, labels, metric="error")
    assert "never right, before or after: class 1; too few" in tuned.summary()


@pytest.mark.parametrize(
    ("metric", "n", "told"),
    [
        ("macro_f1", 299, True),
        ("macro_f1", 300, False),
        ("balanced_error", 100, False),
        ("error", 100, False),
    ],
)
def test_few_samples_for_a_metric_of_precisions_are_told(metric, n, told):
    tuned = lh.tune(LOGITS[-n:], LABELS[-n:], COUNTS, metric=metric)
    words = "up to a third of choices for"
    assert (words in tuned.summary()) == (words in str(tuned)) == told


def test_how_many_choices_lose_is_said_of_macro_f1_alone_which_it_was_measured_for():
    hits = lh.Metric("hits", "hit rate", METRICS["error"].loss)
    for metric, title in (("mcc", "MCC"), ("kappa", "Cohen's kappa"), (hits, "hit rate")):
        told = lh.tune(LOGITS[-100:], LABELS[-100:], COUNTS, metric=metric).facts()["few samples"]
        assert told == f"100 samples are few for {title}; hold out 300 or more"


def test_a_target_is_told_wherever_classes_weigh_by_it():
    target = [0.1, 0.1, 0.2, 0.6]
    tuned = lh.tune(LOGITS, LABELS, COUNTS, target=target)
    # Accuracy is then that of the mix, not of these samples, and no error is balanced.
    assert tuned.summary().startswith("error in the mix of the target ")
    told = "classes weigh as the target says: class 0 10.0%, class 1 10.0%, class 2 20.0%, class 3 60.0%"
    assert told in tuned.summary()
    assert told in str(tuned)
    alike = lh.tune(LOGITS, LABELS, COUNTS, target=[1, 1, 1, 1])
    assert "balanced error" in str(alike)
    assert "classes weigh alike, as the target says" in str(alike)
    by_f1 = lh.tune(LOGITS, LABELS, COUNTS, target=target, metric="macro_f1")
    assert "macro F1" in by_f1.change_text()
    assert told in str(by_f1)
    assert "target says" not in str(lh.tune(LOGITS, LABELS, COUNTS))


def test_a_third_of_the_choices_for_macro_f1_on_few_samples_lost_where_it_was_measured():
    """As `few_text` says it: of all choices of the study, by how many samples they had."""
    cells = json.loads((ROOT / "results/decisions.json").read_text(encoding="utf-8"))["cells"]
    lost = {}
    for size in ("20", "50", "100", "300"):
        few = [cell["macro_f1"]["few"].get(size) for cell in cells]
        changes = [np.subtract(each["levelhead"], each["plain"]) for each in few if each]
        lost[size] = np.mean(np.concatenate(changes) < -0.1)
    assert 0.28 < lost["20"] < 0.36
    assert lost["20"] > lost["100"] > lost["300"]
    assert lost["300"] < 0.2


def price(before: list[float], after: list[float], gain: float, metric="balanced_error") -> str:
    """Return the price of a change of two classes of 90 and 10 samples that are right so often."""
    sizes = np.array([90.0, 10.0])
    tables = [
        lh.Tables(np.array(right), np.array([50.0, 50.0]), sizes) for right in (before, after)
    ]
    evidence = lh.Evidence(METRICS[metric], *tables, gain, 0.01, 5, 100)
    return lh.Tuned("offsets", lh.Adjustment.adding(np.zeros(2)), evidence).price_text()


def test_a_fall_of_accuracy_that_exceeds_the_gain_is_told():
    assert price([90, 2], [80, 4], 0.04).startswith(
        "accuracy falls by 8.0 points, more than that gain"
    )
    assert "the metric macro_f1 weighs both" in price([90, 2], [80, 4], 0.04)
    assert "the metric error would avoid it" in price([90, 2], [80, 4], 0.04, "macro_f1")
    assert price([90, 2], [88, 8], 0.28) == ""  # it rises
    assert price([90, 2], [80, 4], 0.10) == ""  # the gain is more
    assert price([90, 2], [80, 4], 0.04, "error") == ""  # is the gain itself
    assert price([90, 2], [80, 4], 0.04, "mcc") == ""  # whose gain is no share


def test_a_choice_that_costs_accuracy_says_so_in_its_line():
    logits, labels = calibrated(3, 4000, np.array([970, 30]), signal=0.8)
    tuned = lh.tune(logits, labels)
    before, after = tuned.tables
    assert before.accuracy - after.accuracy > tuned.gain
    assert tuned.facts()["price"] in str(tuned)
    assert tuned.facts()["price"] in tuned.summary().splitlines()[0]


def test_test_data_are_named_wherever_the_result_is_printed():
    tuned = lh.tune(LOGITS, LABELS, COUNTS, chosen_on="test")
    assert tuned.to_dict()["chosen_on"] == "test"
    for text in (str(tuned), repr(tuned), tuned.summary(), tuned._repr_html_()):
        assert "TEST DATA, so no test result of it is honest" in text


def test_without_labels_nothing_is_known_of_the_gain():
    tuned = lh.tune_unlabelled(LOGITS, counts=COUNTS)
    assert (tuned.gain, tuned.gain_interval, tuned.verdict, tuned.worthwhile, tuned.metric) == (
        (None,) * 5
    )
    assert (tuned.change_text(), tuned.price_text()) == ("", "")
    assert tuned.verdict_text() == "not judged: there are no labels"
    assert str(tuned).endswith("; target all classes equally often")
    assert tuned.summary() == "\n".join(tuned.facts().values())
    two = lh.tune_unlabelled(LOGITS[:, :2], [1, 3])
    assert two.facts()["target"] == "target class 0 25.0%, class 1 75.0%"
    with pytest.raises(lh.LevelheadError, match="there are no labels"):
        tuned.tables  # noqa: B018


def test_a_choice_that_changes_nothing_says_so():
    tuned = lh.tune(LOGITS, LABELS, COUNTS, rule=lh.rules.Shift(0.0))
    assert (tuned.gain, tuned.verdict, tuned.worthwhile) == (0, "changes nothing", False)
    assert "changes nothing: no prediction differs" in str(tuned)
    assert "-0.00" not in tuned.summary()


@pytest.fixture
def pyplot():
    library = pytest.importorskip("matplotlib.pyplot")
    library.switch_backend("agg")
    yield library
    library.close("all")


def arrows(axes) -> set[tuple[float, float]]:
    """Return where each arrow begins and ends, rounded."""
    return {(round(note.xyann[0], 2), round(note.xy[0], 2)) for note in axes.texts}


@pytest.mark.parametrize("rule", ["offsets", "vector", "shift"])
def test_a_plot_has_an_arrow_for_each_recall_and_precision_that_changes(rule, pyplot):
    tuned = lh.tune(LOGITS, LABELS, COUNTS, rule=rule)
    axes = tuned.plot()
    before, after = tuned.tables
    expected = set()
    for was, now in ((before.recall, after.recall), (before.precision, after.precision)):
        for one, other in zip(100 * was, 100 * now, strict=True):
            if abs(other - one) > 1.5:
                expected.add((round(one, 2), round(other, 2)))
    assert expected
    assert arrows(axes) == expected
    assert axes.get_title("left") == "400 samples, held-out"
    assert axes.get_ylabel() == "class, and its training samples"
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["recall after", "precision after", "before"]


def test_names_that_the_font_lacks_are_drawn_without_a_warning(pyplot, tmp_path):
    labels = np.repeat([0, 1], [80, 20])
    logits = np.random.default_rng(0).normal(size=(100, 2)) + np.eye(2)[labels]
    tuned = lh.tune(logits, labels, names=["日本語", "a\tb"])
    save_plot(tuned.plot, tmp_path / "x.png")  # a warning is an error here
    assert (tmp_path / "x.png").stat().st_size > 1000


def test_a_plot_of_many_classes_shows_those_that_change_most(pyplot):
    logits, labels = calibrated(1, 2000, np.linspace(1000, 10, 50).astype(int))
    axes = lh.tune(logits, labels).plot()
    assert len(axes.get_yticks()) == 40
    assert "40 of 50 classes that change most" in axes.get_xlabel()
    assert axes.get_ylabel() == "class, and its samples here"


def test_a_plot_leaves_out_a_precision_that_is_not_known(pyplot):
    tuned = lh.tune(LOGITS, LABELS, COUNTS)
    evidence = tuned.evidence
    never = replace(evidence.before, predicted=evidence.before.predicted * [1, 1, 1, 0])
    axes = replace(tuned, evidence=replace(evidence, before=never)).plot(pyplot.subplots()[1])
    axes.figure.canvas.draw()
    assert len(arrows(axes)) < 8


def test_html_escapes_what_others_wrote():
    tuned = replace(lh.tune(LOGITS, LABELS, COUNTS), warnings=("<b>bold</b>",))
    assert "<b>bold" not in tuned._repr_html_()
    assert "&lt;b&gt;bold" in tuned._repr_html_()


@pytest.mark.parametrize("of", [np.asarray, torch.tensor])
def test_scores_of_pixels_are_adjusted_along_their_classes(of):
    tuned = lh.Tuned("shift", lh.Adjustment.adding([0.0, 1.5, 3.0]), evidence=None, strength=1.0)
    pixels = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    wanted = pixels + np.array([0, 1.5, 3])[:, None, None]
    np.testing.assert_allclose(np.asarray(tuned.apply(of(pixels))), wanted)
    np.testing.assert_allclose(np.asarray(tuned.apply(of(pixels[..., 0]))), wanted[..., 0])
    tokens = pixels[:, :, :3, 0]  # as many as there are classes: these are last
    np.testing.assert_allclose(np.asarray(tuned.apply(of(tokens))), tokens + [0, 1.5, 3])
    with pytest.raises(lh.LevelheadError, match=r"axis 1 and the last of .* give rows \[M, 3\]"):
        tuned.apply(of(pixels[..., :3]))
