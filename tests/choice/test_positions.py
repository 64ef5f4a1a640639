"""Labels of tokens and pixels: the same as flattened by hand, without the positions that are ignored."""

import numpy as np
import pytest
import torch

import levelhead as lh

COUNTS = [1000, 200, 40]
K = len(COUNTS)


def draw(*shape, seed=0):
    """Return logits [..., K] that lean toward frequent classes, and labels with a third of them ignored."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(K, size=shape)
    logits = (2 + rng.normal(size=(*shape, K)) + 2 * np.eye(K)[labels]) * [1.0, 0.7, 0.4]
    return logits, np.where(rng.random(shape) < 1 / 3, -100, labels)


def by_hand(logits, labels, ignored=-100):
    pairs = [(logits[at], label) for at, label in np.ndenumerate(labels) if label != ignored]
    rows, kept = zip(*pairs, strict=True)
    return np.array(rows), np.array(kept)


FORMS = {
    "tokens": (draw(20, 15), lambda z: z),
    "tokens, classes second": (draw(20, 15), lambda z: np.moveaxis(z, -1, 1)),
    "pixels": (draw(5, 8, 7), lambda z: np.moveaxis(z, -1, 1)),
    "pixels, classes last": (draw(5, 8, 7), lambda z: z),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_positions_are_tuned_and_compared_as_flattened_by_hand(form, kind):
    (logits, labels), turned = FORMS[form]
    flat, kept = by_hand(logits, labels)
    given = kind(np.ascontiguousarray(turned(logits))), kind(labels)
    tuned = lh.tune(*given, COUNTS, rule="shift", bootstrap=20)
    assert (
        tuned.to_dict() == lh.tune(kind(flat), kept, COUNTS, rule="shift", bootstrap=20).to_dict()
    )
    assert tuned.n == len(kept)
    path, same = lh.gamma_path(*given, COUNTS), lh.gamma_path(kind(flat), kept, COUNTS)
    assert np.array_equal(path.gammas, same.gammas)
    assert np.array_equal(path.error, same.error)
    assert path.predictions(0.3).shape == kept.shape


def test_positions_are_compared_as_flattened_by_hand():
    (logits, labels), turned = FORMS["pixels"]
    found = lh.compare(turned(logits), labels, COUNTS, repeats=1)
    assert str(found) == str(lh.compare(*by_hand(logits, labels), COUNTS, repeats=1))


def test_weights_of_positions_are_flattened_with_them():
    logits, labels = draw(20, 15)
    weights = np.random.default_rng(1).random(labels.shape)
    path = lh.gamma_path(logits, labels, COUNTS, weights=weights)
    same = lh.gamma_path(*by_hand(logits, labels), COUNTS, weights=weights[labels != -100])
    assert np.array_equal(path.error, same.error)


def test_ignored_label_may_be_another():
    logits, labels = draw(20, 15)
    labels[labels == -100] = 255
    with pytest.warns(DeprecationWarning, match="ignore_index moved to labels of -100"):
        tuned = lh.tune(logits, labels, COUNTS, rule="shift", ignore_index=255, bootstrap=0)
    assert (
        tuned.gamma
        == lh.tune(*by_hand(logits, labels, 255), COUNTS, rule="shift", bootstrap=0).gamma
    )
    with pytest.raises(ValueError, match="got 255"):
        lh.tune(logits, labels, COUNTS, bootstrap=0)


def test_rows_of_one_label_each_are_left_as_they_are():
    logits, labels = draw(60)
    with pytest.raises(ValueError, match=r"got -100 at position \d+; leave those samples out"):
        lh.tune(logits, labels, COUNTS)


@pytest.mark.parametrize(
    ("shape", "labels", "message"),
    [
        (
            (4, 3, 3),
            (4, 3),
            r"logits \[4, 3, 3\] and labels \[4, 3\] .*either axis could be that of the classes",
        ),
        ((4, 3, 3, 3), (4, 3, 3), "either axis could be"),
        ((4, 5, 3), (4, 6), r"expected \[4, 5\], or \[4, 3\] if classes are the second axis"),
        ((4, 5, 3), (20,), r"labels \[20\]"),
    ],
)
def test_shape_that_could_be_two_things_or_none_is_refused(shape, labels, message):
    for function in (lh.tune, lh.compare, lh.gamma_path):
        with pytest.raises(ValueError, match=message):
            function(np.ones(shape), np.zeros(labels, int), COUNTS)


def test_labels_that_are_all_ignored_are_refused():
    with pytest.raises(ValueError, match="every position has the label -100, which is ignored"):
        lh.tune(np.ones((2, 5, 3)), np.full((2, 5), -100), COUNTS)
