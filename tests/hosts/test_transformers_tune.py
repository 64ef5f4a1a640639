"""`AdjustCallback()` in a real Hugging Face Trainer: against `lh.tune` on logits collected by hand."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import BertForSequenceClassification, Trainer, TrainingArguments

import levelhead as lh
from levelhead.core.constant_direction import constant_direction
from levelhead.hosts.transformers import AdjustCallback

pytestmark = pytest.mark.slow  # each trains, and the library takes seconds to import

HERE = Path(__file__).parent
spec = importlib.util.spec_from_file_location("imbalanced_texts", HERE / "imbalanced_texts.py")
texts = importlib.util.module_from_spec(spec)
spec.loader.exec_module(texts)


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def trainer(model, folder, *callbacks, train=texts.TRAIN, evaluation=texts.EVAL, **options):
    options = {
        "num_train_epochs": 4,
        "learning_rate": 0.01,
        "per_device_train_batch_size": 16,
        "per_device_eval_batch_size": 40,
        "eval_strategy": "epoch",
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        **options,
    }
    args = TrainingArguments(folder, use_cpu=True, disable_tqdm=True, **options)
    return Trainer(model, args, None, train, evaluation, callbacks=list(callbacks))


def chosen_by_hand(callback, model):
    """Return what `lh.tune` chooses on the logits of the head as it was trained; the head stays restored."""
    if callback.adjusted is not None:
        callback.adjusted.restore()
    logits, labels = texts.logits_of(model)
    return lh.tune(logits, labels, texts.COUNTS, names=texts.NAMES)


def same(tuned, truth):
    facts = [(choice.rule, choice.n, choice.counts) for choice in (tuned, truth)]
    offsets = [choice.adjustment.offset for choice in (tuned, truth)]
    return facts[0] == facts[1] and np.allclose(*offsets, atol=1e-4)


def test_a_gain_is_applied_noted_and_said(tmp_path, capfd):
    model, callback = texts.network(), AdjustCallback(page=tmp_path / "page.html")
    run = trainer(model, tmp_path, callback)
    run.train()
    model.train()  # the callback leaves modes alone
    after, labels = texts.logits_of(model)
    run.save_model(tmp_path / "saved")

    tuned = callback.tuned
    assert tuned.worthwhile
    assert callback.adjusted.rule == tuned.rule
    assert same(tuned, chosen_by_hand(callback, model))
    before, _ = texts.logits_of(model)
    balanced = [
        1 - np.mean([(part[labels == k].argmax(1) == k).float().mean() for k in range(3)])
        for part in (before, after)
    ]
    assert balanced[0] == pytest.approx(tuned.evidence.value_before, abs=1e-6)
    assert balanced[1] == pytest.approx(tuned.evidence.value, abs=0.05)  # by fits without a fold
    assert balanced[1] < balanced[0] - 0.03

    said = capfd.readouterr().err
    assert "applied to classifier" in said
    assert callback.verdict in said
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    note = json.loads((tmp_path / "saved" / "config.json").read_text())["levelhead"]
    assert (note["rule"], note["gain"], note["samples"]) == (tuned.rule, tuned.gain, 249)
    card = (tmp_path / "README.md").read_text()
    assert "`classifier` was adjusted" in card
    assert "chosen on 249 held-out samples" in card
    # A temperature calibrates for that mix, and does not bring that of the training back.
    weighed = "for classes as balanced error weighs them"
    assert f"calibrated {weighed}, divide the logits by {tuned.temperature:.3g}" in card
    run.create_model_card()  # as `push_to_hub` does: over ours, so the docs say how to add it again
    assert "was adjusted" not in (tmp_path / "README.md").read_text()
    callback.on_push_begin(run.args, run.state, run.control)
    both = (tmp_path / "README.md").read_text()
    assert both.startswith("---\nlibrary_name: transformers")
    assert "### Training hyperparameters" in both
    assert both.count("`classifier` was adjusted") == 1
    loaded = BertForSequenceClassification.from_pretrained(tmp_path / "saved")
    assert torch.allclose(texts.logits_of(loaded)[0], after, atol=1e-6)
    with pytest.raises(ValueError, match="adjusted already"):
        lh.adjust_(loaded, tuned)


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")
@pytest.mark.parametrize("model", [texts.network, texts.llama])
def test_a_training_in_mixed_precision_is_adjusted(model, tmp_path):
    callback = AdjustCallback(anyway=True)
    trainer(model(), tmp_path, callback, bf16=True).train()
    assert callback.adjusted.rule == "offsets"
    assert callback.adjusted.checked == "own inputs"


def test_where_no_gain_is_seen_the_head_stays(tmp_path, capfd):
    model, callback = texts.network(), AdjustCallback()
    predicted = (
        texts.logits_of(model)[0].argmax(dim=1).tolist()
    )  # it errs nowhere, and learns nothing
    items = [{**item, "labels": label} for item, label in zip(texts.EVAL, predicted, strict=True)]
    options = {"evaluation": items, "num_train_epochs": 1, "learning_rate": 0.0}
    trainer(model, tmp_path, callback, **options).train()
    assert callback.tuned.worthwhile is False
    assert callback.adjusted is None
    said = capfd.readouterr().err
    assert "not applied, as no gain was seen: the head stays as it was trained" in said
    assert not hasattr(model.config, "levelhead")
    assert not (tmp_path / "README.md").exists()


def test_choice_is_for_the_best_model_and_checkpoints_stay_plain(tmp_path):
    model, callback = texts.network(), AdjustCallback(anyway=True)
    options = {
        "save_strategy": "epoch",
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_loss",
    }
    run = trainer(model, tmp_path, callback, num_train_epochs=6, learning_rate=0.02, **options)
    run.train()
    best = Path(run.state.best_model_checkpoint)
    assert best.name != f"checkpoint-{run.state.global_step}"  # the last is not the best
    assert same(callback.tuned, chosen_by_hand(callback, model))
    assert torch.equal(
        load_file(best / "model.safetensors")["classifier.weight"], model.classifier.weight
    )
    assert all(
        "levelhead" not in json.loads(path.read_text())
        for path in tmp_path.glob("checkpoint-*/config.json")
    )


def test_resumed_training_is_leveled_as_one_never_stopped(tmp_path):
    options = {"save_strategy": "epoch", "gradient_accumulation_steps": 2, "num_train_epochs": 2}
    whole, other = texts.network(), texts.network(seed=3)
    first, second = (AdjustCallback(anyway=True) for _ in range(2))
    run = trainer(whole, tmp_path, first, **options)
    run.train()
    half = min(tmp_path.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    trainer(other, tmp_path, second, **options).train(resume_from_checkpoint=str(half))
    np.testing.assert_allclose(
        second.tuned.adjustment.offset, first.tuned.adjustment.offset, atol=1e-3
    )
    torch.testing.assert_close(whole.classifier.bias, other.classifier.bias, rtol=1e-4, atol=1e-4)
    once = whole.classifier.bias.detach().clone()
    trainer(whole, tmp_path, first, **options).train(
        resume_from_checkpoint=str(half)
    )  # with the same callback
    torch.testing.assert_close(whole.classifier.bias, once, rtol=1e-4, atol=1e-4)


def test_adapter_of_peft_is_tuned_and_adjusted(tmp_path):
    from peft import LoraConfig, PeftModel, get_peft_model

    lora = LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"])
    model, callback = get_peft_model(texts.network(), lora), AdjustCallback(anyway=True)
    options = {"num_train_epochs": 2, "learning_rate": 0.05, "save_strategy": "epoch"}
    run = trainer(model, tmp_path, callback, **options)
    run.train()
    assert callback.adjusted.layers == ("base_model.model.classifier.modules_to_save.default",)
    after, _ = texts.logits_of(model)
    run.save_model()
    card = (
        tmp_path / "README.md"
    ).read_text()  # PEFT writes its own lines into the card that is there
    assert "was adjusted for imbalanced classes" in card
    assert "library_name: peft" in card
    assert not any(
        "@levelhead" in path.read_text()
        for path in tmp_path.glob("checkpoint-*/adapter_config.json")
    )
    loaded = PeftModel.from_pretrained(texts.network(), tmp_path).eval()
    assert torch.allclose(texts.logits_of(loaded)[0], after, atol=1e-6)
    with pytest.raises(ValueError, match="adjusted already"):
        lh.adjust_(loaded, callback.tuned)
    callback.adjusted.restore()
    before, _ = texts.logits_of(model)
    assert not torch.allclose(after, before)
    torch.testing.assert_close(after, callback.tuned.apply(before), rtol=1e-4, atol=1e-4)


def test_llama_takes_offsets_into_the_weights_of_its_score_and_loads_as_ever(tmp_path, capfd):
    model, callback = texts.llama(), AdjustCallback(page=tmp_path / "page.html")
    run = trainer(model, tmp_path, callback)
    run.train()
    run.save_model(tmp_path / "saved")
    after, labels = texts.logits_of(model)
    assert callback.adjusted.rule == "offsets"
    assert model.score.bias is None
    loaded = type(model).from_pretrained(tmp_path / "saved")
    assert torch.allclose(texts.logits_of(loaded)[0], after, atol=1e-5)

    # What came out is what was judged: offsets times f'u, on samples that neither was fitted on.
    tuned = callback.tuned
    callback.adjusted.restore()
    before, _ = texts.logits_of(model)
    features = texts.features_of(model)
    _, reach = constant_direction(features.double().numpy())
    assert tuned.reach == pytest.approx((reach.mean(), reach.std()), abs=1e-4)
    moved = torch.outer(features @ torch.tensor(callback.adjusted.along.direction).float(),
                        torch.tensor(tuned.adjustment.offset).float())  # fmt: skip
    assert torch.allclose(after, before + moved, atol=1e-4)
    by_hand = lh.tune(before, labels, texts.COUNTS, names=texts.NAMES, features=features)
    assert tuned.gain == pytest.approx(by_hand.gain, abs=1e-6)
    said = capfd.readouterr().err
    assert f"{reach.mean():.2f} ± {reach.std():.2f} of each offset" in said
    assert "no bias" in (tmp_path / "README.md").read_text()
    assert "Which classes are confused" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_llama_takes_given_offsets_into_the_weights_of_its_score(tmp_path):
    shift = lh.rules.Shift(1.0)
    model, callback = texts.llama(), AdjustCallback(shift, counts=texts.COUNTS)
    trainer(model, tmp_path, callback, num_train_epochs=2).train()
    assert model.score.bias is None
    after, _ = texts.logits_of(model)
    callback.adjusted.restore()
    before, _ = texts.logits_of(model)
    reach = texts.features_of(model).numpy() @ callback.adjusted.along.direction
    offsets = np.log(max(texts.COUNTS) / np.array(texts.COUNTS))
    assert np.allclose(after, before.numpy() + np.outer(reach, offsets), atol=1e-4)
    # A choice that only multiplies needs no evaluation; one that adds is refused without, in time.
    scaled = AdjustCallback(lh.rules.Rescale(0.5), counts=texts.COUNTS)
    trainer(texts.llama(), tmp_path, scaled, eval_strategy="no", num_train_epochs=1).train()
    assert scaled.adjusted.rule == "rescale"
    run = trainer(texts.llama(), tmp_path, callback, eval_strategy="no")
    with pytest.raises(lh.LevelheadError, match="cannot give score a bias") as refused:
        run.train()
    assert "eval_dataset" in str(refused.value)
    assert "pass features" not in str(refused.value)
    assert run.state.global_step == 0


def test_adapter_of_a_llama_takes_offsets_into_its_score_and_loads_as_ever(tmp_path):
    from peft import LoraConfig, PeftModel, get_peft_model

    lora = LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["q_proj", "v_proj"])
    model, callback = get_peft_model(texts.llama(), lora), AdjustCallback(anyway=True)
    run = trainer(model, tmp_path, callback, num_train_epochs=2, learning_rate=0.05)
    run.train()
    run.save_model()
    assert callback.adjusted.along is not None
    after, _ = texts.logits_of(model)
    loaded = PeftModel.from_pretrained(texts.llama(), tmp_path).eval()
    assert torch.allclose(texts.logits_of(loaded)[0], after, atol=1e-5)


class Signs(torch.nn.Module):
    """Turns every second sample around, so that no direction is 1 for all."""

    def forward(self, x):
        return x * (1 - 2 * (torch.arange(len(x)) % 2))[:, None]


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.NegativeLogitsWarning")
def test_head_without_a_bias_is_scaled_where_no_direction_of_its_inputs_is_one(tmp_path):
    model, callback = texts.network(), AdjustCallback(anyway=True, counts=texts.COUNTS)
    model.classifier = torch.nn.Sequential(Signs(), torch.nn.Linear(16, 3, bias=False))
    with pytest.warns(lh.warnings.LevelheadWarning, match="scaled: features: no direction"):
        trainer(model, tmp_path, callback, num_train_epochs=1).train()
    assert callback.adjusted.rule == "scales"
    assert model.classifier[1].bias is None
    asked = AdjustCallback(rule="offsets", counts=texts.COUNTS)
    with pytest.warns(lh.warnings.LevelheadWarning, match="no direction in them is 1"):
        trainer(model, tmp_path, asked, num_train_epochs=1).train()
    assert asked.adjusted is None
    callback.adjusted.restore()
    by_rule = AdjustCallback(lh.rules.Shift(1.0), counts=texts.COUNTS)
    with pytest.warns(lh.warnings.LevelheadWarning, match=r"stays as it was trained.*no direction"):
        trainer(model, tmp_path, by_rule, num_train_epochs=1).train()
    assert by_rule.adjusted is None
    assert "no direction" in by_rule.verdict


def test_training_without_an_evaluation_or_counts_is_refused_before_the_first_step(tmp_path):
    with pytest.raises(ValueError, match=r"by: tuning on the evaluation needs one.*eval_strategy"):
        trainer(texts.network(), tmp_path, AdjustCallback(), eval_strategy="no").train()
    two = [item for item in texts.TRAIN if item["labels"] < 2]
    with pytest.raises(ValueError, match=r"class 2 \(rare\) has no samples"):
        trainer(texts.network(), tmp_path, AdjustCallback(), train=two).train()
    with pytest.raises(ValueError, match="no layer 'head'"):
        trainer(texts.network(), tmp_path, AdjustCallback(layer="head")).train()


def test_a_page_that_cannot_be_written_is_refused_before_the_first_step(tmp_path):
    run = trainer(texts.network(), tmp_path, AdjustCallback(page=tmp_path / "missing" / "a.html"))
    with pytest.raises(ValueError, match=r"page: .*missing: no such folder"):
        run.train()
    assert run.state.global_step == 0


def test_several_evaluation_sets_leave_the_head_as_trained(tmp_path):
    model, callback = texts.network(), AdjustCallback()
    sets = {"one": texts.EVAL[:40], "two": texts.EVAL[40:80]}
    with pytest.warns(
        lh.warnings.LevelheadWarning, match="expected one evaluation set to tune on, got 2"
    ):
        trainer(model, tmp_path, callback, evaluation=sets, num_train_epochs=1).train()
    assert callback.adjusted is None
    assert "stays as it was trained" in callback.verdict


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metric": "auc"}, "metric: expected error, balanced_error"),
        ({"rule": "auto"}, "rule: expected 'offsets'"),
    ],
)
def test_a_wrong_setting_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        AdjustCallback(**given)


def test_numbers_and_text_go_to_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    callback = AdjustCallback(anyway=True)
    trainer(
        texts.network(), tmp_path, callback, report_to="tensorboard", num_train_epochs=1
    ).train()
    (folder,) = {path.parent for path in tmp_path.glob("runs/**/events.out.*")}
    events = EventAccumulator(str(folder)).Reload()
    assert events.Scalars("levelhead/gain")[0].value == pytest.approx(callback.tuned.gain)
    assert events.Scalars("levelhead/applied")[0].value == 1
    assert events.Scalars("levelhead/accuracy")[0].value <= 1


def test_two_processes_tune_on_the_whole_evaluation(in_two_processes):
    in_two_processes(HERE / "two_trainers.py")


@pytest.mark.filterwarnings("ignore")
def test_numbers_and_page_go_to_mlflow_though_its_run_has_ended(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    callback = AdjustCallback(anyway=True)
    options = {"report_to": "mlflow", "num_train_epochs": 1, "logging_strategy": "epoch"}
    trainer(texts.network(), tmp_path, callback, **options).train()
    [logged] = mlflow.search_runs(output_format="list")
    assert logged.info.status == "FINISHED"
    assert logged.data.metrics["levelhead/gain"] == pytest.approx(callback.tuned.gain)
    assert [
        artifact.path for artifact in mlflow.MlflowClient().list_artifacts(logged.info.run_id)
    ] == ["levelhead.html"]
