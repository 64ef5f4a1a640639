"""`AdjustCallback()` in a real Lightning trainer: against `lh.tune` on logits collected by hand."""

from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot
from torch.utils.data import DataLoader, TensorDataset

import levelhead as lh
from levelhead.hosts.lightning import AdjustCallback

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`:UserWarning"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step`:UserWarning"),
]

COUNTS = [300, 60, 15]


def drawn(counts, seed):
    draw, labels = (
        torch.Generator().manual_seed(seed),
        torch.tensor(np.repeat(np.arange(3), counts)),
    )
    return TensorDataset(
        torch.randn(len(labels), 6, generator=draw) + 1.3 * one_hot(labels, 6), labels
    )


TRAIN, EVAL = drawn(COUNTS, 0), drawn([83, 83, 83], 1)


class Net(pl.LightningModule):
    def __init__(self, bias=True):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.1))
            self.fc = nn.Linear(8, 3, bias=bias)

    def forward(self, x):
        return self.fc(self.body(x))

    def training_step(self, batch, _):
        return cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("val_loss", cross_entropy(self(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.2, momentum=0.9)


class Still(Net):
    """A network that stays as it was drawn, with a head that prefers the frequent classes."""

    def __init__(self):
        super().__init__()
        self.fc.bias.data = torch.tensor(COUNTS).log()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0)


def fit(module, folder, *callbacks, epochs=3, validation=EVAL, checkpoint=None, **options):
    settings = {
        "logger": False,
        "enable_checkpointing": False,
        "num_sanity_val_steps": 0,
        "log_every_n_steps": 5,
        **options,
    }
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=list(callbacks),
        **settings,
    )
    loaders = [
        DataLoader(data, batch_size=40) for data in ([] if validation is None else [validation])
    ]
    trainer.fit(
        module, DataLoader(TRAIN, batch_size=25, shuffle=True), *loaders, ckpt_path=checkpoint
    )
    return trainer


@torch.no_grad()
def logits_of(module):
    return module.eval()(EVAL.tensors[0])


def chosen_by_hand(callback, module):
    callback.adjusted.restore()
    return lh.tune(logits_of(module), EVAL.tensors[1], COUNTS)


def same(tuned, truth):
    facts = [(choice.rule, choice.n, choice.counts) for choice in (tuned, truth)]
    offsets = [choice.adjustment.offset for choice in (tuned, truth)]
    return facts[0] == facts[1] and np.allclose(*offsets, atol=1e-4)


def test_a_gain_is_applied_and_said(tmp_path, capfd):
    module, callback = Net(), AdjustCallback(page=tmp_path / "page.html")
    fit(module, tmp_path, callback, accumulate_grad_batches=2, epochs=4)
    after = logits_of(module)
    assert callback.tuned.worthwhile
    assert "applied to fc" in capfd.readouterr().err
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<h3>Already applied</h3>" in page
    assert "To fc, when the training ended." in page
    assert "levelhead adjust" not in page
    assert same(callback.tuned, chosen_by_hand(callback, module))
    lh.adjust_(module, callback.tuned)
    assert torch.equal(logits_of(module), after)


class WeightsOnly(nn.Linear):
    """A layer whose forward would leave a bias out."""

    def forward(self, x):
        return x @ self.weight.T


@pytest.mark.parametrize("validation", [EVAL, None])
def test_given_offsets_go_into_the_weights_of_a_head_that_can_get_no_bias(tmp_path, validation):
    module = Net()
    module.fc = WeightsOnly(8, 3, bias=False)
    callback = AdjustCallback(lh.rules.Shift(1.0), counts=COUNTS)
    if validation is None:
        with pytest.raises(lh.LevelheadError, match="give fit a validation loader"):
            fit(module, tmp_path, callback, validation=None)
        return
    fit(module, tmp_path, callback)
    after = logits_of(module)
    callback.adjusted.restore()
    before = logits_of(module)
    reach = module.body(EVAL.tensors[0]).detach().numpy() @ callback.adjusted.along.direction
    offsets = np.log(max(COUNTS) / np.array(COUNTS))
    assert np.allclose(after, before.numpy() + np.outer(reach, offsets), atol=1e-4)


def test_head_without_a_bias_takes_offsets_into_its_weights_and_loads_as_ever(tmp_path, capfd):
    module, callback = Net(bias=False), AdjustCallback(anyway=True)
    trainer = fit(module, tmp_path, callback, epochs=4)
    trainer.save_checkpoint(tmp_path / "leveled.ckpt")
    after = logits_of(module)
    loaded = Net.load_from_checkpoint(tmp_path / "leveled.ckpt", bias=False)
    assert torch.allclose(logits_of(loaded), after, atol=1e-5)
    assert "of each offset" in capfd.readouterr().err
    callback.adjusted.restore()
    before = logits_of(module)
    features = module.body(EVAL.tensors[0]).detach()
    by_hand = lh.tune(before, EVAL.tensors[1], COUNTS, features=features)
    assert callback.tuned.gain == pytest.approx(by_hand.gain, abs=1e-6)
    assert callback.tuned.reach == pytest.approx(by_hand.reach, abs=1e-4)
    reach = features.numpy() @ callback.adjusted.along.direction
    moved = np.outer(reach, callback.tuned.adjustment.offset)
    assert np.allclose(after, before.numpy() + moved, atol=1e-4)


def test_checkpoints_stay_plain_and_one_saved_afterwards_says_what_was_done(tmp_path):
    module, callback = Net(), AdjustCallback(anyway=True)
    saved = pl.callbacks.ModelCheckpoint(tmp_path, save_last=True)
    trainer = fit(module, tmp_path, callback, saved, enable_checkpointing=True)
    trainer.save_checkpoint(tmp_path / "leveled.ckpt")
    callback.adjusted.restore()
    plain = torch.load(saved.last_model_path, weights_only=True)["state_dict"]
    assert all(torch.equal(value, plain[name]) for name, value in module.state_dict().items())
    note = next(
        iter(torch.load(tmp_path / "leveled.ckpt", weights_only=True)["callbacks"].values())
    )
    assert (note["rule"], note["strength"], note["layers"]) == ("offsets", None, ["fc"])

    with pytest.warns(lh.warnings.LevelheadWarning, match="was adjusted already"):
        fit(
            Net(),
            tmp_path,
            AdjustCallback(),
            checkpoint=tmp_path / "leveled.ckpt",
            epochs=3,
        )
    other, again = Net(), AdjustCallback(anyway=True)
    fit(other, tmp_path, again, checkpoint=saved.last_model_path, epochs=4)
    assert same(again.tuned, chosen_by_hand(again, other))


def test_where_no_gain_is_seen_the_head_stays(tmp_path, capfd):
    callback = AdjustCallback(rule="shift", counts=COUNTS)
    module, samples = Still(), drawn([100, 20, 5], 33).tensors[0]
    module.fc.bias.data.zero_()
    right = module.eval()(samples).argmax(dim=1)  # it errs nowhere
    fit(module.train(), tmp_path, callback, validation=TensorDataset(samples, right), epochs=1)
    assert callback.tuned.worthwhile is False
    assert callback.adjusted is None
    said = capfd.readouterr().err
    assert "not applied, as no gain was seen: the head stays as it was trained" in said


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")  # of tau here
def test_rule_and_metric_are_those_asked_for(tmp_path):
    callback = AdjustCallback(rule="tau", metric=lh.Goal("f1_macro"), anyway=True)
    fit(Net(), tmp_path, callback, epochs=1)
    assert (callback.tuned.rule, callback.tuned.metric) == ("tau", "macro_f1")


def test_a_background_stays_as_it_is(tmp_path):
    module = Net()
    alone = lh.counts.with_background([9000, 60, 15], 0)
    callback = AdjustCallback(counts=alone, anyway=True)
    fit(module, tmp_path, callback)
    callback.adjusted.restore()
    by_hand = lh.tune(logits_of(module), EVAL.tensors[1], alone)
    assert (callback.tuned.background, callback.tuned.adjustment.offset[0]) == (0, 0)
    assert same(callback.tuned, by_hand)


def test_labels_that_cannot_be_counted_ahead_are_not_needed(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([TRAIN[i] for i in range(0, len(TRAIN), 3)])

    callback = AdjustCallback(anyway=True)
    options = {"accelerator": "cpu", "max_epochs": 1, "logger": False, "callbacks": [callback]}
    options |= {"enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(default_root_dir=tmp_path, enable_checkpointing=False, **options)
    trainer.fit(Net(), DataLoader(Stream(), batch_size=25), DataLoader(EVAL, batch_size=40))
    assert callback.tuned.counted
    assert callback.adjusted is not None


def test_batches_of_another_kind_need_a_function(tmp_path):
    class Odd(Net):
        def forward(self, x):
            return {"features": self.body(x)}

        def training_step(self, batch, _):
            return cross_entropy(self.fc(self(batch[0])["features"]), batch[1])

        def validation_step(self, batch, _):
            pass

    with pytest.warns(
        lh.warnings.LevelheadWarning, match=r"stays as it was trained.*got dict with features"
    ):
        fit(Odd(), tmp_path, failed := AdjustCallback(), epochs=1)
    assert failed.adjusted is None
    callback = AdjustCallback(
        anyway=True,
        scores=lambda model, batch: (model.fc(model(batch[0])["features"]), batch[1]),
    )
    fit(Odd(), tmp_path, callback, epochs=1)
    assert callback.tuned.n == 249


@pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
def test_batches_are_in_the_precision_of_the_trainer(tmp_path, precision):
    module, callback = Still(), AdjustCallback(anyway=True)
    fit(module, tmp_path, callback, epochs=1, precision=precision)
    assert callback.adjusted.layers == ("fc",)
    assert callback.tuned.n == 249


class Centered(Still):
    """A network whose batches a hook makes larger, and those of training noisy."""

    def on_after_batch_transfer(self, batch, dataloader_idx):
        x, labels = batch
        if self.trainer.training:
            x = x + torch.randn_like(x)
        return 5 * x, labels


def test_batches_are_what_the_hooks_of_the_module_make_of_them(tmp_path):
    module, callback = Centered(), AdjustCallback(anyway=True)
    trainer = fit(module, tmp_path, callback, epochs=1)
    callback.adjusted.restore()
    with torch.no_grad():
        logits = module.eval()(5 * EVAL.tensors[0])
    assert same(callback.tuned, lh.tune(logits, EVAL.tensors[1], COUNTS))
    assert not trainer.validating


def test_fit_without_validation_is_refused_before_the_first_step(tmp_path):
    for options in ({"validation": None}, {"limit_val_batches": 0}):
        with pytest.raises(ValueError, match="by: tuning on the evaluation needs one"):
            fit(Net(), tmp_path, AdjustCallback(), epochs=1, **options)


class Inner(Net):
    """A network whose head has no known name, so that it is found by its number of outputs."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(self.body, self.fc)
        del self.body, self.fc

    def forward(self, x):
        return self.net(x)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"counts": [300, 60]}, r"counts: expected one count.*got 2.*\(they have 3, 8\)"),
        (
            {"by": lh.rules.Rescale(0.5), "counts": {"ant": 300, "bee": 60}},
            r"counts: expected one count.*got 2",
        ),
        (
            {"by": lh.rules.Rescale(0.5), "counts": {"ant": 300, "bee": 60, "cat": 15}},
            r"counts must be in class order$",
        ),
        ({"by": lh.rules.Rescale(0.5)}, "counts: the rule rescale needs counts"),
        ({"by": lh.rules.Rescale(), "counts": COUNTS}, "rule: expected a strength"),
    ],
)
def test_counts_that_do_not_fit_are_named_and_not_the_head(tmp_path, given, message):
    with pytest.raises(lh.LevelheadError, match=message):
        fit(Inner(), tmp_path, AdjustCallback(**given), epochs=1)
    # Labels, which are counted once the head is known, do not say how many classes there are.
    with pytest.raises(lh.LevelheadError, match=r"^could not tell which layer is the head"):
        fit(Inner(), tmp_path, AdjustCallback(counts=TRAIN.tensors[1]), epochs=1)


class Sharpened(Net):
    """A network whose logits are three times what its head gives."""

    def forward(self, x):
        return 3 * super().forward(x)


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.NegativeLogitsWarning")
@pytest.mark.parametrize("options", [{}, {"rule": "shift"}], ids=["offsets", "shift"])
def test_what_would_not_arrive_in_the_logits_is_refused_before_the_first_step(tmp_path, options):
    module = Sharpened()
    with pytest.raises(lh.LevelheadError, match="is not added to the model's logits"):
        fit(module, tmp_path, AdjustCallback(**options), epochs=1)
    assert torch.equal(module.fc.weight, Sharpened().fc.weight)
    callback = AdjustCallback(rule="scales", anyway=True)
    fit(module, tmp_path, callback, epochs=1)
    adjusted = logits_of(module)
    callback.adjusted.restore()
    torch.testing.assert_close(adjusted, callback.tuned.apply(logits_of(module)))


def test_a_head_that_cannot_be_adjusted_any_more_does_not_lose_the_training(tmp_path):
    class Adjust(pl.Callback):
        def on_train_end(self, trainer, module):
            lh.adjust_(module, lh.rules.Shift(1.0), COUNTS)

    callback = AdjustCallback(anyway=True)
    with pytest.warns(lh.warnings.LevelheadWarning, match=r"stays as it was.*adjusted already"):
        fit(Net(), tmp_path, Adjust(), callback, epochs=1)
    assert callback.adjusted is None
    assert "adjusted already" in callback.verdict


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("missing/page.html", "page: .*missing: no such folder to write page.html into"),
        ("page.txt", "page: .*page.txt: expected a page as .html, got .txt"),
        ("", "page: .*: a folder; expected the name of a file to write"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_before_the_first_step(tmp_path, page, message):
    folder = tmp_path / "folder.html"
    folder.mkdir()
    module = Net()
    with pytest.raises(lh.LevelheadError, match=message):
        fit(module, tmp_path, AdjustCallback(page=folder / page), epochs=1)
    assert torch.equal(module.fc.weight, Net().fc.weight)


def test_a_page_that_cannot_be_written_any_more_does_not_lose_the_training(tmp_path):
    class Disk(pl.Callback):
        def on_train_end(self, *_):
            (tmp_path / "pages").rmdir()

    (tmp_path / "pages").mkdir()
    callback = AdjustCallback(page=tmp_path / "pages" / "page.html")
    with pytest.warns(lh.warnings.LevelheadWarning, match=r"the page was not written: .*pages"):
        fit(Net(), tmp_path, Disk(), callback)
    assert callback.adjusted is not None


def test_validation_that_is_limited_is_tuned_on_as_far(tmp_path):
    callback = AdjustCallback(anyway=True)
    fit(Net(), tmp_path, callback, limit_val_batches=3, epochs=1, validation=drawn([40, 40, 83], 1))
    assert callback.tuned.n == 120


def test_numbers_and_text_go_to_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger, callback = (
        pl.loggers.TensorBoardLogger(tmp_path),
        AdjustCallback(anyway=True),
    )
    fit(Net(), tmp_path, callback, logger=logger)
    events = EventAccumulator(logger.log_dir).Reload()
    assert events.Scalars("levelhead/gain")[0].value == pytest.approx(callback.tuned.gain)
    assert events.Scalars("levelhead/applied")[0].value == 1
    assert any("levelhead" in tag for tag in events.Tags()["tensors"])


def test_two_processes_tune_on_the_whole_validation(in_two_processes):
    in_two_processes(Path(__file__).with_name("two_lightnings.py"))


@pytest.mark.filterwarnings("ignore")
def test_numbers_and_page_go_to_mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    logger = pl.loggers.MLFlowLogger(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    callback = AdjustCallback(anyway=True)
    fit(Net(), tmp_path, callback, logger=logger, epochs=1)
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    assert client.get_run(logger.run_id).data.metrics["levelhead/gain"] == pytest.approx(
        callback.tuned.gain
    )
    assert [artifact.path for artifact in client.list_artifacts(logger.run_id)] == [
        "levelhead.html"
    ]
