"""The contract of a method, held for every row of the table."""

import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import levelhead as lh
from levelhead.core.counts import long_tail
from levelhead_lab.methods import METHODS, Method, Retrain, load, method_named
from levelhead_lab.methods.ldam import ldam_margins
from levelhead_lab.methods.table import changes, reference

ROWS = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
TRAINING = ("loss", "sample", "project", "order", "head", "stages", "retrain")


@pytest.fixture
def head():
    return lh.Head(np.random.default_rng(0).normal(size=(5, 8)))


def test_the_table_opens_with_table_1():
    assert list(METHODS)[:9] == [
        "baseline",
        "over-sample",
        "under-sample",
        "re-weighting",
        "focal",
        "class-balanced",
        "ldam",
        "baseline+rs",
        "wvn+rs",
    ]


def test_names_are_keys_and_titles_are_unique():
    assert [method.name for method in METHODS.values()] == list(METHODS)
    assert len({method.title for method in METHODS.values()}) == len(METHODS)


def test_methods_survive_pickling():
    assert [
        name for name, method in METHODS.items() if pickle.loads(pickle.dumps(method)) != method
    ] == []


def test_every_method_has_a_card_with_its_parts_and_a_reference():
    parts = ("Changes:", "Formula:", "Knobs:", "Caveats:", "Reference:")
    assert [
        (name, part)
        for name, method in METHODS.items()
        for part in parts
        if f"\n{part}" not in method.card
    ] == []
    assert [
        name
        for name, method in METHODS.items()
        if not re.search(r"\b20[12]\d\b.*[.1]$", reference(method))
    ] == []


def test_the_card_names_every_slot_that_is_filled():
    said = {
        name: re.findall(r"^Changes:([^.]*)", method.card, re.MULTILINE)
        for name, method in METHODS.items()
    }
    assert [
        (name, slot)
        for name, method in METHODS.items()
        for slot in changes(method)
        if not any(slot in words for words in said[name])
    ] == []


@ROWS
def test_losses_give_one_value_per_sample_for_counts_as_a_list(method):
    for progress in (0.0, *method.stages, 1.0):
        values = method.loss([50, 20, 5], progress)(
            torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
        )
        assert values.shape == (6,)
        assert (values >= 0).all()


@ROWS
def test_losses_change_only_at_stages(method):
    logits, labels = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    for low, high in zip((0.0, *method.stages), (*method.stages, 1.0), strict=True):
        early, late = (
            method.loss([50, 20, 5], low + t * (high - low))(logits, labels) for t in (0.0, 0.99)
        )
        assert torch.equal(early, late)


@ROWS
def test_samples_are_indices_of_the_labels(method):
    labels = np.repeat(np.arange(5), long_tail(60, 5, 10))
    for sample in (method.sample, method.retrain and method.retrain.sample):
        if sample is not None:
            indices = sample(labels, np.random.default_rng(0), 0.0)
            assert indices.dtype.kind == "i"
            assert 0 <= indices.min() <= indices.max() < len(labels)


@ROWS
def test_projections_give_unit_length_and_repeat_to_nothing(method, head):
    if method.project is not None:
        once = method.project(head)
        np.testing.assert_allclose(once.norms, 1, rtol=1e-12)
        np.testing.assert_allclose(method.project(once).weight, once.weight, rtol=1e-12)
        in_torch = method.project(lh.Head(torch.from_numpy(head.weight)))
        np.testing.assert_allclose(in_torch.weight, once.weight, rtol=1e-12)


def test_algorithm_1_projects_after_the_step_and_the_released_code_before_it():
    ours, theirs = METHODS["wvn"], METHODS["wvn-released"]
    assert (ours.order, theirs.order) == ("after", "before")
    assert ours.project is theirs.project


@ROWS
def test_adjustments_of_strength_zero_change_nothing(method, head):
    if method.adjust is not None:
        assert np.array_equal(
            method.adjust(head, np.array([9, 7, 5, 3, 1]), 0.0).weight, head.weight
        )
        assert not np.array_equal(
            method.adjust(head, np.array([9, 7, 5, 3, 1]), 0.5).weight, head.weight
        )


@ROWS
def test_with_equal_counts_nothing_that_reads_counts_does_anything(method, head):
    """Every loss treats all classes alike, and RS is the identity."""
    equal, logits, labels = [37] * 5, torch.randn(10, 5, dtype=torch.float64), torch.arange(10) % 5
    plain = {
        "ldam": lambda: _ldam(logits, labels),
        "ldam-drw": lambda: _ldam(logits, labels),
        "focal": lambda: _focal(logits, labels),
        "class-balanced-focal": lambda: _focal(logits, labels),
    }
    expected = plain.get(
        method.name, lambda: torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    )()
    for progress in (0.0, 0.9):
        torch.testing.assert_close(
            method.loss(equal, progress)(logits, labels), expected, rtol=1e-12, atol=1e-14
        )
    if method.name.endswith("+rs"):
        assert np.array_equal(method.adjust(head, np.array(equal), 0.7).weight, head.weight)


def _focal(logits, labels):
    entropy = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    return (1 - torch.exp(-entropy)) * entropy


def _ldam(logits, labels):
    return torch.nn.functional.cross_entropy(
        30 * (logits - 0.5 * torch.nn.functional.one_hot(labels, 5)), labels, reduction="none"
    )


@pytest.mark.parametrize("classes", [2, 3, 10, 100, 1000])
@pytest.mark.parametrize("n", [1, 7, 5000])
def test_with_equal_counts_class_weights_are_exactly_one_and_margins_equal(classes, n):
    for name in ("re-weighting", "class-balanced", "class-balanced-focal"):
        assert METHODS[name].loss([n] * classes).weights.values.tolist() == [1.0] * classes
    assert METHODS["balanced-softmax"].loss([n] * classes).shift.values.tolist() == [0.0] * classes
    assert ldam_margins([n] * classes).tolist() == [0.5] * classes


@ROWS
def test_what_only_adjusts_shares_its_training(method):
    if method.trained_as is not None:
        other = METHODS[method.trained_as]
        assert other.trained_as is None
        assert [getattr(method, slot) for slot in TRAINING] == [
            getattr(other, slot) for slot in TRAINING
        ]
    else:
        assert method.adjust is None


@ROWS
def test_rs_can_follow_any_method_that_does_not_adjust(method):
    if method.adjust is None:
        both = method_named(f"{method.name}+rs")
        assert (both.name, both.trained_as) == (f"{method.name}+rs", method.name)
    else:
        with pytest.raises(ValueError, match="already adjusts"):
            method_named(f"{method.name}+rs")


def test_unknown_names_list_the_known_ones():
    with pytest.raises(
        ValueError,
        match=r"unknown method 'lday'; the methods are baseline, .*, crt; .*FILE\.py:NAME",
    ):
        method_named("lday")


def test_a_users_own_method_is_loaded_from_its_file(tmp_path):
    (tmp_path / "my.py").write_text(
        "from dataclasses import dataclass, replace\nfrom levelhead_lab.methods import METHODS\n"
        "@dataclass\nclass Mine:\n    factor: float\n    def __call__(self, counts, progress=0.0):\n"
        "        return lambda logits, labels: self.factor * METHODS['baseline'].loss(counts)(logits, labels)\n"
        "METHOD = replace(METHODS['wvn'], name='mine', loss=Mine(2.0))\n"
    )
    for name in ("mine", "mine+rs"):
        method = method_named(f"{tmp_path}/my.py:METHOD{name.removeprefix('mine')}")
        assert method.name == name
        values = method.loss([1, 1])(torch.zeros(1, 2), torch.tensor([0]))
        assert values.item() == pytest.approx(2 * np.log(2))


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("x = 1", "my.py", r"expected a method as FILE\.py:NAME, got '.*my\.py'"),
        ("x = 1", "my.py:METHOD", r"my\.py does not define METHOD; its methods are none"),
        (
            "from levelhead_lab.methods.focal import METHOD as A",
            "my.py:B",
            r"my\.py does not define B; its methods are A",
        ),
        ("METHOD = {}", "my.py:METHOD", r"expected a levelhead_lab\.methods\.Method, got dict"),
        ("1 / 0", "my.py:METHOD", r"my\.py does not run: ZeroDivisionError: division by zero"),
        ("def (", "my.py:METHOD", r"my\.py does not run: SyntaxError"),
        (
            "from levelhead_lab.methods import Method\nMETHOD = Method('m', 'M', lambda counts: None)",
            "my.py:METHOD",
            r"loss: expected a function of \(counts, progress\), got \(counts\)$",
        ),
    ],
)
def test_what_is_wrong_with_a_users_file_is_said_in_one_line(tmp_path, text, where, message):
    (tmp_path / "my.py").write_text(text)
    with pytest.raises(ValueError, match=message):
        load(f"{tmp_path}/{where}")


def test_a_users_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"absent\.py: no such file; .* defines the Method METHOD"
    ):
        load(f"{tmp_path}/absent.py:METHOD")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"order": "during"}, "order: expected 'after' or 'before', got 'during'"),
        ({"head": "conv"}, "head: expected 'linear' or 'cosine', got 'conv'"),
        ({"stages": (160,)}, "stages: expected shares between 0 and 1, got "),
        ({"project": "unit"}, r"project: expected a function of \(head\), got str"),
        (
            {"sample": len},
            r"sample: expected a function of \(labels, generator, progress\)",
        ),
    ],
)
def test_records_check_themselves(wrong, message):
    with pytest.raises(ValueError, match=message):
        Method("x", "X", METHODS["baseline"].loss, **wrong)


def test_a_second_stage_of_no_length_is_refused():
    with pytest.raises(ValueError, match="share: expected a positive share of the epochs, got 0"):
        Retrain(0, METHODS["baseline"].loss)


def test_reading_about_methods_loads_no_torch():
    code = "import sys, levelhead.cli; from levelhead_lab.methods import METHODS; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_name_in_capitals_is_answered_with_the_names_there_are():
    with pytest.raises(KeyError, match="unknown method 'LDAM'; the methods are baseline, "):
        METHODS["LDAM"]
    assert METHODS.get("LDAM") is None
    assert "LDAM" not in METHODS
