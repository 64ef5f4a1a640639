"""Names of classes and values given by class, where no public function tests them alone."""

from types import SimpleNamespace

import numpy as np
import pytest

import levelhead as lh
from levelhead.core.class_names import in_order, names_in_config, names_of_columns
from levelhead.support.errors import LevelheadError


def test_names_of_a_config_are_in_the_order_of_their_numbers():
    assert names_in_config(SimpleNamespace(id2label={1: "dog", 0: "cat"}), 2) == ["cat", "dog"]
    assert names_in_config(SimpleNamespace(id2label={0: "LABEL_0", 1: "LABEL_1"}), 2) is None
    assert names_in_config(SimpleNamespace(id2label={0: "cat"}), 2) is None


def test_classes_are_found_in_the_titles_of_columns():
    table = SimpleNamespace(columns=["logit_dog", "logit_cat"])
    assert names_of_columns(table, {"cat": 400, "dog": 100}) == ["dog", "cat"]
    assert names_of_columns(table, {"cat": 400, "owl": 100}) is None


def test_counts_by_name_or_index_are_put_in_order():
    assert in_order({"dog": 30, "0": 70}, 2, ["cat", "dog"]).tolist() == [70, 30]
    for wrong, reason in (
        ({"cat": "x", "dog": 1}, "is 'x'"),
        ({"cat": 10**400, "dog": 1}, "beyond any float"),
    ):
        with pytest.raises(LevelheadError, match=reason):
            in_order(wrong, 2, ["cat", "dog"])


def test_classes_of_bool_labels_are_called_by_bools():
    pandas = pytest.importorskip("pandas")
    assert in_order({True: 1, False: 9}, 2, None).tolist() == [9, 1]
    assert in_order({True: 1, np.False_: 9}, 2, ["1", "0"]).tolist() == [1, 9]
    assert in_order({True: 1, False: 9}, 2, ["True", "False"]).tolist() == [1, 9]
    labels = np.random.default_rng(0).random(300) < 0.2
    logits = np.stack([~labels * 2.0 + 2, labels * 2.0], axis=1)
    logits += np.random.default_rng(1).normal(size=(300, 2))
    wanted = lh.tune(logits, labels, [900, 100]).adjustment.offset
    counts = {True: 100, False: 900}
    np.testing.assert_allclose(lh.tune(logits, labels, counts).adjustment.offset, wanted)
    frame = pandas.DataFrame(logits[:, ::-1], columns=[True, False])
    tuned = lh.tune(frame, labels, counts, metric=lh.Goal(floors={True: 0.5}))
    assert tuned.names == ("True", "False")
    offset = lh.tune(frame, labels, counts).adjustment.offset
    np.testing.assert_allclose(offset[0] - offset[1], wanted[1] - wanted[0])
