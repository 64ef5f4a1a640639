"""Losses of the methods in the Trainer of transformers: the weights that torch's own function gives."""

import pickle

import pytest
import torch
from torch.nn.functional import cross_entropy

from levelhead_lab.methods import METHODS
from levelhead_lab.methods.trainer_loss import compute_loss_func

pytest.importorskip("transformers")
from ..hosts.test_transformers import CLOSE, network, trainer

pytestmark = pytest.mark.slow  # each trains, and the library takes seconds to import


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.parametrize("method", ["class-balanced", "balanced-softmax"])
def test_accumulated_batches_train_as_one_batch_does(tmp_path, method):
    """20 samples in steps of 8, 8 and 4: a mean of means would weigh the last step's batches wrongly."""
    ended = []
    for size, accumulate in ((8, 1), (4, 2), (1, 8)):
        model = network()
        trainer(
            model,
            tmp_path,
            loss=compute_loss_func(method, [30, 8, 2]),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulate,
            max_grad_norm=0,
        ).train()
        ended.append(model.classifier.weight.detach())
    for other in ended[1:]:
        torch.testing.assert_close(other, ended[0], **CLOSE)


def test_the_baseline_loss_trains_as_the_models_own_does(tmp_path):
    ours, theirs = network(), network()
    trainer(
        ours,
        tmp_path,
        loss=compute_loss_func("baseline", [30, 8, 2]),
        gradient_accumulation_steps=3,
    ).train()
    trainer(theirs, tmp_path, gradient_accumulation_steps=3).train()
    torch.testing.assert_close(ours.classifier.weight, theirs.classifier.weight, **CLOSE)


@pytest.mark.parametrize("items", [None, torch.tensor(23)])
def test_ignored_positions_do_not_count(items):
    logits, labels = torch.randn(4, 6, 3), torch.randint(0, 3, (4, 6))
    labels[0, 2:] = labels[3, 1] = -100
    weight = torch.tensor([1 / 30, 1 / 8, 1 / 2])
    theirs = cross_entropy(
        logits.flatten(0, 1), labels.flatten(), weight / weight.mean(), reduction="sum"
    )
    for outputs in ({"logits": logits}, (logits, "hidden")):
        ours = compute_loss_func("re-weighting", [30, 8, 2])(
            outputs, labels, num_items_in_batch=items
        )
        torch.testing.assert_close(ours, theirs / (19 if items is None else 23))


def test_losses_can_be_pickled():
    loss = pickle.loads(
        pickle.dumps(compute_loss_func(METHODS["class-balanced-focal"], [30, 8, 2]))
    )
    assert loss((torch.zeros(1, 3),), torch.tensor([1])).shape == ()


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("wvn", "wvn does more than change the loss: project; use WVNCallback for project"),
        ("focal+rs", r"focal\+rs does more than change the loss: adjust"),
        ("over-sample", "over-sample does more than change the loss: sample"),
        ("crt", "crt does more than change the loss: retrain"),
        ("ldam", "ldam needs a cosine head"),
        ("nope", "unknown method 'nope'; the methods are baseline"),
    ],
)
def test_methods_that_do_more_than_change_the_loss_are_refused(method, message):
    with pytest.raises(ValueError, match=message):
        compute_loss_func(method, [30, 8, 2])
