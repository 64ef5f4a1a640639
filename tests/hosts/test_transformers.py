"""The callbacks and losses in a real Hugging Face Trainer, on a small random network, offline."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    BertForTokenClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
)

import levelhead as lh
from levelhead.hosts.transformers import AdjustCallback, WVNCallback

from .small_bert import small_bert

pytestmark = pytest.mark.slow  # each trains, and the library takes seconds to import

NAMES = ["often", "seldom", "rare"]
COUNTS = {"rare": 2, "often": 30, "seldom": 8}
DRAW = torch.Generator().manual_seed(0)
DATA = [
    {"input_ids": torch.randint(1, 20, (5,), generator=DRAW), "labels": int(i % 7 % 3)}
    for i in range(20)
]
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def network(seed=0):
    return small_bert(
        seed,
        id2label=dict(enumerate(NAMES)),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.5,
    )


class Watch(TrainerCallback):
    """Rows of the head before the first step, after every accumulated batch and every step."""

    def __init__(self):
        self.heads = []

    def _look(self, *_, model, **__):
        self.heads.append(model.classifier.weight.detach().clone())

    on_train_begin = on_substep_end = on_step_end = _look

    def assert_unit(self, at_least):
        assert len(self.heads) >= at_least
        norms = torch.stack(self.heads).norm(dim=2)
        torch.testing.assert_close(norms, torch.ones_like(norms), rtol=0, atol=1e-6)


def trainer(model, tmp_path, *callbacks, loss=None, **options):
    options = {
        "num_train_epochs": 2,
        "per_device_train_batch_size": 4,
        "optim": "sgd",
        "learning_rate": 0.05,
        "save_strategy": "no",
        "logging_strategy": "no",
        **options,
    }
    args = TrainingArguments(tmp_path, use_cpu=True, report_to="none", disable_tqdm=True, **options)
    return Trainer(model, args, None, DATA, DATA, callbacks=list(callbacks), compute_loss_func=loss)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2},
        {"bf16": True},
        {"optim": "adamw_torch"},
    ],
    ids=["plain", "accumulated", "bf16", "adamw"],
)
def test_rows_have_unit_length_before_and_after_every_step(tmp_path, options):
    watch = Watch()
    trainer(network(), tmp_path, WVNCallback(), watch, **options).train()
    watch.assert_unit(at_least=11)


def test_without_the_callback_rows_do_not_have_unit_length(tmp_path):
    watch = Watch()
    trainer(network(), tmp_path, watch).train()
    with pytest.raises(AssertionError):
        watch.assert_unit(at_least=11)


@pytest.mark.parametrize("order", ["algorithm", "released"])
def test_training_equals_a_loop_written_by_hand(tmp_path, order):
    model, other = network(), network()
    trainer(
        model,
        tmp_path,
        WVNCallback(order=order),
        lr_scheduler_type="constant",
        max_grad_norm=0,
        per_device_train_batch_size=len(DATA),
        num_train_epochs=5,
    ).train()
    weight, optimizer = other.classifier.weight, torch.optim.SGD(other.parameters(), lr=0.05)

    def normalize():
        weight.data = torch.stack([w / w.square().sum().sqrt() for w in weight.data])

    normalize()
    for _ in range(5):
        other(**default_data_collator(DATA)).loss.backward()
        if order == "released":
            normalize()
        optimizer.step()
        optimizer.zero_grad()
        if order == "algorithm":
            normalize()
    torch.testing.assert_close(model.classifier.weight, weight, **CLOSE)


def test_a_resumed_training_equals_one_never_stopped(tmp_path):
    whole, second, watch = network(), network(seed=1), Watch()
    options = {"save_strategy": "steps", "save_steps": 4}
    trainer(whole, tmp_path, WVNCallback(), **options).train()
    trainer(second, tmp_path, WVNCallback(), watch, **options).train(
        resume_from_checkpoint=f"{tmp_path}/checkpoint-4"
    )
    watch.assert_unit(at_least=7)
    assert len(watch.heads) == 7
    torch.testing.assert_close(second.classifier.weight, whole.classifier.weight, **CLOSE)


def test_rows_are_normalized_at_once_when_a_plain_training_is_resumed(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 4}
    trainer(network(), tmp_path, **options).train()
    watch = Watch()
    resumed = trainer(network(), tmp_path, WVNCallback(), watch, **options)
    resumed.train(resume_from_checkpoint=f"{tmp_path}/checkpoint-4")
    plain = load_file(tmp_path / "checkpoint-4" / "model.safetensors")["classifier.weight"]
    torch.testing.assert_close(watch.heads[0], plain / plain.norm(dim=1, keepdim=True), **CLOSE)
    watch.assert_unit(at_least=7)


def test_nothing_stays_on_the_optimizer_when_training_ends(tmp_path):
    ended = trainer(network(), tmp_path, WVNCallback())
    ended.train()
    optimizer = ended.optimizer.optimizer
    assert not optimizer._optimizer_step_post_hooks
    assert not optimizer._optimizer_step_pre_hooks


def test_rescaling_comes_once_and_after_every_checkpoint(tmp_path):
    model, callback = network(), AdjustCallback(lh.rules.Rescale(0.5), counts=COUNTS)
    ended = trainer(model, tmp_path / "run", callback, save_strategy="epoch")
    ended.train()
    ended.save_model(tmp_path / "leveled")
    plain, leveled = (
        load_file(tmp_path / path / "model.safetensors")
        for path in ("run/checkpoint-10", "leveled")
    )
    by = torch.tensor([1.0, (30 / 8) ** 0.5, 15**0.5])
    torch.testing.assert_close(
        leveled["classifier.weight"], by[:, None] * plain["classifier.weight"]
    )
    torch.testing.assert_close(leveled["classifier.bias"], by * plain["classifier.bias"])
    callback.adjusted.restore()
    assert torch.equal(model.classifier.weight, plain["classifier.weight"])


def test_the_best_model_is_rescaled_if_it_is_loaded_at_the_end(tmp_path):
    model = network()
    ended = trainer(
        model,
        tmp_path,
        AdjustCallback(lh.rules.Rescale(0.5), counts=COUNTS),
        save_strategy="epoch",
        eval_strategy="epoch",
        load_best_model_at_end=True,
        learning_rate=5.0,
        optim="adamw_torch",
    )
    ended.train()
    best = load_file(f"{ended.state.best_model_checkpoint}/model.safetensors")["classifier.weight"]
    by = torch.tensor([1.0, 30 / 8, 15.0]) ** 0.5
    torch.testing.assert_close(model.classifier.weight.detach(), by[:, None] * best)


def test_a_second_training_starts_from_the_head_before_rescaling(tmp_path):
    model, callback, watch = (
        network(),
        AdjustCallback(lh.rules.Rescale(0.5), counts=COUNTS),
        Watch(),
    )
    trainer(model, tmp_path, callback).train()
    plain = callback.adjusted.before["classifier"]
    trainer(model, tmp_path, callback, watch).train()
    assert watch.heads[0].norm(dim=1).tolist() == pytest.approx(plain, rel=1e-6)


def test_a_checkpoint_that_was_loaded_is_not_overwritten(tmp_path):
    model, watch, options = network(), Watch(), {"save_strategy": "steps", "save_steps": 4}
    callback = AdjustCallback(lh.rules.Rescale(0.5), counts=COUNTS)
    trainer(model, tmp_path, callback, **options).train()
    trainer(model, tmp_path, callback, watch, **options).train(
        resume_from_checkpoint=f"{tmp_path}/checkpoint-4"
    )
    plain = load_file(tmp_path / "checkpoint-4" / "model.safetensors")["classifier.weight"]
    assert torch.equal(watch.heads[0], plain)


@pytest.mark.parametrize(
    ("counts", "layer", "message"),
    [
        (COUNTS, "head", "no layer 'head' in the model; it has .*classifier"),
        ([1, 2], "classifier", "expected 3 counts, one per class, got 2"),
        (
            {"often": 3, "never": 2, "rare": 1},
            None,
            "unknown class name 'never'; the classes are often, seldom, rare",
        ),
    ],
)
def test_bad_counts_or_layers_are_refused_before_the_first_step(tmp_path, counts, layer, message):
    watch = Watch()
    with pytest.raises(ValueError, match=message):
        trainer(
            network(),
            tmp_path,
            AdjustCallback(lh.rules.Rescale(0.3), counts=counts, layer=layer),
            watch,
        ).train()
    assert watch.heads == []


def tuned_on_scores(names):
    labels = np.repeat([0, 1, 2], [40, 30, 30])
    noise = torch.randn(100, 3, generator=torch.Generator().manual_seed(1)).numpy()
    scores = 3 + noise + 2 * np.eye(3)[labels] + np.array([2.0, 1.0, 0.0])
    return lh.tune(scores, labels, [30, 8, 2], names=names)


def test_what_was_tuned_is_applied_when_the_training_has_ended(tmp_path):
    tuned = tuned_on_scores(NAMES)
    assert tuned.adjustment.changes
    plain, model, callback, watch = network(), network(), AdjustCallback(tuned), Watch()
    trainer(plain, tmp_path).train()
    trainer(model, tmp_path, callback).train()
    by = torch.tensor(tuned.adjustment.offset, dtype=torch.float32)
    torch.testing.assert_close(model.classifier.bias, plain.classifier.bias + by, **CLOSE)
    assert torch.equal(model.classifier.weight, plain.classifier.weight)
    # From the head as trained, and adjusted once more at its end.
    trainer(model, tmp_path, callback, watch).train()
    assert torch.equal(watch.heads[0], plain.classifier.weight)
    assert callback.adjusted.rule == "offsets"


def test_a_choice_with_classes_in_another_order_is_refused_before_the_first_step(tmp_path):
    watch = Watch()
    with pytest.raises(ValueError, match="classes in another order"):
        trainer(network(), tmp_path, AdjustCallback(tuned_on_scores(NAMES[::-1])), watch).train()
    assert watch.heads == []


def test_wvn_takes_classes_and_an_example(tmp_path):
    model = network()
    model.rival = torch.nn.Linear(8, 3)  # of the head's shape, and not used
    with pytest.raises(ValueError, match="rival"):
        trainer(model, tmp_path, WVNCallback()).train()
    trainer(
        model, tmp_path, WVNCallback(classes=3, example={"input_ids": DATA[0]["input_ids"][None]})
    ).train()
    assert torch.allclose(model.classifier.weight.norm(dim=1), torch.ones(3), **CLOSE)


@pytest.mark.filterwarnings(
    "ignore::levelhead.support.warnings.CountsWarning"
)  # the network is not trained
def test_token_classification_is_tuned_and_adjusted_from_logits_to_model():
    config = network().config
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = BertForTokenClassification(config).eval()
    ids, labels = (
        torch.stack([item["input_ids"] for item in DATA]),
        torch.randint(3, (20, 5), generator=DRAW),
    )
    labels[:, 0] = labels[:, -1] = -100  # special tokens
    with torch.no_grad():
        before = model(input_ids=ids).logits
        tuned = lh.tune(before, labels, [30, 8, 2])
        lh.adjust_(model, tuned)
        after = model(input_ids=ids).logits
    assert tuned.n == 60
    offset = torch.tensor(tuned.adjustment.offset, dtype=torch.float32)
    assert torch.allclose(after, before + offset, **CLOSE)
