"""What has moved works for a version: each old name or parameter warns, names the new one, and gives the same."""

import numpy as np
import pytest
import torch

import levelhead as lh
from levelhead_lab.paper import geometry

RNG = np.random.default_rng(0)
LABELS = RNG.integers(3, size=300)
LOGITS = (2 + RNG.normal(size=(300, 3)) + 2 * np.eye(3)[LABELS]) * [1.0, 0.7, 0.4]
COUNTS = [1000, 200, 40]
COST = 1.0 - np.eye(3)
NORMS = np.array([3.0, 2.0, 1.0])
GIVEN = (LOGITS, LABELS, COUNTS)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ({"cost": COST}, {"metric": lh.Goal(cost=COST)}, r"lh\.Goal\(cost="),
        (
            {"metric": "error", "floors": 0.2},
            {"metric": lh.Goal("error", floors=0.2)},
            r"lh\.Goal\(floors=",
        ),
        (
            {"criterion": "balanced_error"},
            {"metric": lh.Goal(criterion="balanced_error")},
            r"lh\.Goal\(criterion=",
        ),
        (
            {"rule": "shift", "range": (0, 1)},
            {"rule": lh.rules.Shift(range=(0, 1))},
            r"lh\.rules\.Shift\(range=",
        ),
        ({"norms": NORMS}, {"rule": lh.rules.Auto(norms=NORMS)}, r"lh\.rules\.Auto\(norms="),
        (
            {"rule": "tau", "norms": NORMS},
            {"rule": lh.rules.Tau(norms=NORMS)},
            r"lh\.rules\.Tau\(norms=",
        ),
        (
            {"rule": "rescale", "bias": [0.1, 0, 0]},
            {"rule": lh.rules.Rescale(bias=[0.1, 0, 0])},
            r"Rescale\(bias=",
        ),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)
def test_an_old_parameter_of_tune_gives_what_the_new_one_does(old, new, named):
    with pytest.warns(DeprecationWarning, match=named):
        before = lh.tune(*GIVEN, bootstrap=100, **old)
    assert before.to_dict() == lh.tune(*GIVEN, bootstrap=100, **new).to_dict()


def test_a_background_moves_to_the_counts():
    with pytest.warns(DeprecationWarning, match="with_background"):
        before = lh.tune(*GIVEN, bootstrap=0, background=0)
    after = lh.tune(LOGITS, LABELS, lh.counts.with_background(COUNTS, 0), bootstrap=0)
    assert before.to_dict() == after.to_dict()
    assert before.counts == (200, 200, 40)


def test_labels_to_ignore_are_minus_100():
    tokens, labels = LOGITS.reshape(30, 10, 3), LABELS.reshape(30, 10)
    out = np.arange(300).reshape(30, 10) % 4 == 0
    with pytest.warns(DeprecationWarning, match="-100"):
        before = lh.tune(tokens, np.where(out, 255, labels), COUNTS, bootstrap=0, ignore_index=255)
    after = lh.tune(tokens, np.where(out, -100, labels), COUNTS, bootstrap=0)
    assert before.to_dict() == after.to_dict()
    assert before.n == 225


def test_several_labels_have_a_function_of_their_own():
    truth = np.eye(3)[LABELS]
    with pytest.warns(DeprecationWarning, match="tune_labels"):
        before = lh.tune(LOGITS - 2, truth, COUNTS, task="multilabel", bootstrap=0)
    assert before.to_dict() == lh.tune_labels(LOGITS - 2, truth, COUNTS, bootstrap=0).to_dict()


def test_a_model_and_a_loader_give_scores():
    model, x = torch.nn.Linear(3, 3, bias=False), torch.tensor(LOGITS, dtype=torch.float32)
    torch.nn.init.eye_(model.weight)
    model.predict = (
        model.forward
    )  # as models of some libraries have; scikit-learn's are refused by it
    loader = [(x[:200], torch.tensor(LABELS[:200])), (x[200:], torch.tensor(LABELS[200:]))]
    with pytest.warns(DeprecationWarning, match=r"lh\.scores"):
        before = lh.tune(model, loader, COUNTS, bootstrap=0)
    assert before.to_dict() == lh.tune(*lh.scores(model, loader), COUNTS, bootstrap=0).to_dict()


def test_names_at_the_top_say_where_they_are_now():
    with pytest.warns(DeprecationWarning, match=r"lh\.warnings\.CountsWarning"):
        assert lh.CountsWarning is lh.warnings.CountsWarning
    with pytest.warns(DeprecationWarning, match=r"lh\.priors\.estimate_prior"):
        assert lh.estimate_prior is lh.priors.estimate_prior
    with pytest.warns(DeprecationWarning, match=r"levelhead_lab\.paper\.geometry"):
        assert lh.geometry is geometry
    with pytest.raises(AttributeError, match="NoSuchWarning"):
        _ = lh.NoSuchWarning


def test_there_are_at_most_twenty_names_and_few_parameters():
    import inspect

    assert len(lh.__all__) <= 20
    keywords = [
        p for p in inspect.signature(lh.tune).parameters.values() if p.kind is p.KEYWORD_ONLY
    ]
    assert len(keywords) <= 15


@pytest.mark.parametrize(
    ("ours", "theirs"), [("macro_f1", "f1_macro"), ("balanced_error", "balanced_accuracy")]
)
def test_metrics_go_by_both_names(ours, theirs):
    for call in (lh.tune, lh.compare):
        more = {"bootstrap": 0} if call is lh.tune else {"repeats": 1}
        assert (
            call(*GIVEN, metric=ours, **more).to_dict()
            == call(*GIVEN, metric=theirs, **more).to_dict()
        )
