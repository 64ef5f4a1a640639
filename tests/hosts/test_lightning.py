"""The callbacks in a real Lightning trainer, against loops written by hand."""

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import levelhead as lh
from levelhead.hosts.lightning import AdjustCallback, WVNCallback

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.*:FutureWarning"),
]

DRAW = torch.Generator().manual_seed(0)
X, Y = torch.randn(40, 6, generator=DRAW), torch.randint(0, 3, (40,), generator=DRAW)
COUNTS = [30, 8, 2]
RARITY = np.array([1.0, 30 / 8, 15.0])
ONE_STEP = {"rtol": 1e-6, "atol": 1e-6}


class Net(pl.LightningModule):
    def __init__(self, optimizer=torch.optim.SGD, seed=0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.body = nn.Sequential(nn.Linear(6, 5), nn.Tanh())
            self.fc = nn.Linear(5, 3, bias=False)
        self.kind = optimizer

    def forward(self, x):
        return self.fc(self.body(x))

    def training_step(self, batch, _):
        return cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        momentum = {"momentum": 0.9} if self.kind is torch.optim.SGD else {}
        return self.kind(self.parameters(), lr=0.1, weight_decay=0.01, **momentum)


class Watch(pl.Callback):
    """Rows of the head before the first step and after every batch."""

    def __init__(self):
        self.norms, self.heads = [], []

    def _look(self, module):
        self.heads.append(module.fc.weight.detach().clone())
        self.norms.append(self.heads[-1].norm(dim=1))

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if not self.norms:
            self._look(module)

    def on_train_batch_end(self, trainer, module, *_):
        self._look(module)

    def assert_unit(self, at_least):
        assert len(self.norms) >= at_least
        torch.testing.assert_close(
            torch.stack(self.norms), torch.ones(len(self.norms), 3), rtol=0, atol=1e-6
        )


def batches():
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=8)


def fit(module, tmp_path, *callbacks, epochs=2, checkpoint=None, **options):
    options = {"enable_checkpointing": False, **options}
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=list(callbacks),
        **options,
    )
    trainer.fit(module, batches(), ckpt_path=checkpoint)
    return trainer


def by_hand(module, *, epochs=2, accumulate=1, before=False):
    """The same training as a plain loop, Algorithm 1 written out."""
    optimizer = module.configure_optimizers()

    def normalize():
        with torch.no_grad():
            module.fc.weight.copy_(
                torch.stack([w / w.square().sum().sqrt() for w in module.fc.weight])
            )

    normalize()
    for _ in range(epochs):
        loader = list(batches())
        for i, batch in enumerate(loader):
            (module.training_step(batch, i) / accumulate).backward()
            if (i + 1) % accumulate == 0 or i + 1 == len(loader):
                if before:
                    normalize()
                optimizer.step()
                optimizer.zero_grad()
                if not before:
                    normalize()
    return module


@pytest.mark.parametrize(
    "options",
    [{}, {"accumulate_grad_batches": 2}, {"precision": "bf16-mixed"}, {"gradient_clip_val": 0.1}],
    ids=["plain", "accumulated", "bf16", "clipped"],
)
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_rows_have_unit_length_before_and_after_every_step(tmp_path, optimizer, options):
    watch = Watch()
    fit(Net(optimizer), tmp_path, WVNCallback(), watch, **options)
    watch.assert_unit(at_least=11)


def test_without_the_callback_rows_do_not_have_unit_length(tmp_path):
    watch = Watch()
    fit(Net(), tmp_path, watch)
    with pytest.raises(AssertionError):
        watch.assert_unit(at_least=11)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("order", ["algorithm", "released"])
def test_training_equals_a_loop_written_by_hand(tmp_path, order, accumulate):
    module = Net()
    fit(module, tmp_path, WVNCallback("fc", order=order), accumulate_grad_batches=accumulate)
    other = by_hand(Net(), accumulate=accumulate, before=order == "released")
    for ours, theirs in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, **ONE_STEP)


def test_a_resumed_training_equals_one_never_stopped(tmp_path):
    whole, first, second, watch = Net(), Net(), Net(seed=1), Watch()
    fit(whole, tmp_path, WVNCallback(), epochs=4)
    fit(first, tmp_path, WVNCallback(), epochs=2).save_checkpoint(tmp_path / "half.ckpt")
    fit(second, tmp_path, WVNCallback(), watch, epochs=4, checkpoint=tmp_path / "half.ckpt")
    watch.assert_unit(at_least=11)
    torch.testing.assert_close(second.fc.weight, whole.fc.weight, **ONE_STEP)


def test_rows_are_normalized_at_once_when_a_plain_training_is_resumed(tmp_path):
    fit(Net(), tmp_path).save_checkpoint(tmp_path / "plain.ckpt")
    watch = Watch()
    fit(Net(seed=1), tmp_path, WVNCallback(), watch, epochs=4, checkpoint=tmp_path / "plain.ckpt")
    watch.assert_unit(at_least=11)
    plain = torch.load(tmp_path / "plain.ckpt", weights_only=True)["state_dict"]["fc.weight"]
    torch.testing.assert_close(watch.heads[0], plain / plain.norm(dim=1, keepdim=True), **ONE_STEP)


def hooks(optimizer):
    return len(optimizer._optimizer_step_post_hooks) + len(optimizer._optimizer_step_pre_hooks)


def test_nothing_stays_on_the_optimizer_when_training_ends_or_fails(tmp_path):
    class Fail(pl.Callback):
        def on_train_batch_end(self, trainer, *_):
            assert hooks(trainer.optimizers[0]) == 1
            self.optimizer = trainer.optimizers[0]
            raise KeyError("stop")

    ended, fail = fit(Net(), tmp_path, WVNCallback()), Fail()
    assert hooks(ended.optimizers[0]) == 0
    with pytest.raises(KeyError, match="stop"):
        fit(Net(), tmp_path, WVNCallback(), fail)
    assert hooks(fail.optimizer) == 0


@pytest.mark.parametrize(
    ("parts", "with_head"),
    [(["body", "fc"], 1), (["fc", "fc"], 2)],
    ids=["one trains the head", "both do"],
)
def test_hooks_are_on_those_of_two_optimizers_that_train_the_head(tmp_path, parts, with_head):
    class Two(Net):
        automatic_optimization = False

        def configure_optimizers(self):
            return [torch.optim.SGD(getattr(self, part).parameters(), lr=0.1) for part in parts]

        def training_step(self, batch, i):
            for optimizer in self.optimizers():
                self.manual_backward(super().training_step(batch, i))
                optimizer.step()
                optimizer.zero_grad()
                assert sum(map(hooks, self.trainer.optimizers)) == with_head

    watch = Watch()
    trainer = fit(Two(), tmp_path, WVNCallback(), watch)
    watch.assert_unit(at_least=11)
    assert sum(map(hooks, trainer.optimizers)) == 0


def test_a_head_no_optimizer_trains_is_an_error(tmp_path):
    class Frozen(Net):
        def configure_optimizers(self):
            return torch.optim.SGD(self.body.parameters(), lr=0.1)

    with pytest.raises(ValueError, match="no optimizer trains fc"):
        fit(Frozen(), tmp_path, WVNCallback())


def test_rescaling_comes_once_and_after_every_checkpoint(tmp_path):
    module, callback = Net(), AdjustCallback(lh.rules.Rescale(0.5), counts=COUNTS)
    saved = pl.callbacks.ModelCheckpoint(tmp_path, save_last=True, filename="each")
    fit(module, tmp_path, callback, saved, enable_checkpointing=True)
    plain = torch.load(saved.last_model_path, weights_only=True)["state_dict"]["fc.weight"]
    by = torch.tensor([1.0, (30 / 8) ** 0.5, 15**0.5])
    torch.testing.assert_close(module.fc.weight.detach(), by[:, None] * plain)
    assert callback.adjusted.adjustment.scale == pytest.approx(RARITY**0.5)
    callback.adjusted.restore()
    assert torch.equal(module.fc.weight, plain)


def test_a_second_fit_starts_from_the_head_before_rescaling(tmp_path):
    module, callback, watch = Net(), AdjustCallback(lh.rules.Rescale(0.5), counts=COUNTS), Watch()
    fit(module, tmp_path, callback)
    plain = callback.adjusted.before["fc"]
    fit(module, tmp_path, callback, watch)
    torch.testing.assert_close(
        watch.norms[0].double(), torch.from_numpy(plain).double(), **ONE_STEP
    )


def test_weights_loaded_in_between_are_not_restored(tmp_path):
    module, callback, watch = Net(), AdjustCallback(lh.rules.Rescale(0.5), counts=COUNTS), Watch()
    fit(module, tmp_path, callback)
    module.load_state_dict(Net(seed=7).state_dict())
    fit(module, tmp_path, callback, watch)
    assert torch.equal(watch.heads[0], Net(seed=7).fc.weight)


def test_wvn_and_rescaling_together_leave_lengths_that_are_the_factors(tmp_path):
    module = Net()
    fit(module, tmp_path, WVNCallback(), AdjustCallback(lh.rules.Rescale(0.3), counts=COUNTS))
    assert module.fc.weight.norm(dim=1).tolist() == pytest.approx(RARITY**0.3, rel=1e-6)


@pytest.mark.parametrize(
    ("counts", "layer", "message"),
    [
        (COUNTS, "head", r"no layer 'head' in the model; it has body\.0"),
        ([1, 2], "fc", "expected 3 counts, one per class, got 2"),
        ([30, 8, 0], None, "class 2 has no samples"),
    ],
)
def test_bad_counts_or_layers_are_refused_before_the_first_step(tmp_path, counts, layer, message):
    watch = Watch()
    with pytest.raises(ValueError, match=message):
        fit(
            Net(),
            tmp_path,
            AdjustCallback(lh.rules.Rescale(0.3), counts=counts, layer=layer),
            watch,
        )
    assert watch.norms == []


@pytest.mark.parametrize("rule", [lh.rules.Rescale(), lh.rules.Offsets()], ids=["none", "fitted"])
def test_a_rule_without_a_strength_is_refused_before_the_first_step(tmp_path, rule):
    watch = Watch()
    with pytest.raises(ValueError, match=r"rule: (expected a strength|.* is fitted on held-out)"):
        fit(Net(), tmp_path, AdjustCallback(rule, counts=COUNTS), watch)
    with pytest.raises(ValueError, match="counts: the rule rescale needs counts"):
        fit(Net(), tmp_path, AdjustCallback(lh.rules.Rescale(0.5)), watch)
    assert watch.norms == []


def test_a_head_that_the_first_batch_builds_is_rescaled_at_the_end(tmp_path):
    module, callback = Net(), AdjustCallback(lh.rules.Rescale(0.5), counts=COUNTS, layer="fc")
    module.fc = nn.LazyLinear(3, bias=False)
    fit(module, tmp_path, callback)
    assert callback.adjusted.adjustment.scale == pytest.approx(RARITY**0.5)
    assert module.fc.weight.norm(dim=1).tolist() == pytest.approx(callback.adjusted.after["fc"])


def choice(rule):
    """What a rule chooses on labelled scores of three classes."""
    labels = np.repeat([0, 1, 2], [40, 30, 30])
    noise = torch.randn(100, 3, generator=torch.Generator().manual_seed(1)).numpy()
    scores = 3 + noise + 2 * np.eye(3)[labels] + np.array([2.0, 1.0, 0.0])
    return lh.tune(scores, labels, COUNTS, rule=rule)


@pytest.mark.parametrize("rule", ["rescale", "shift", "offsets", "scales", "vector"])
def test_a_choice_of_any_rule_is_applied_when_the_fit_has_ended(tmp_path, rule):
    tuned, plain, module = choice(rule), Net(), Net()
    assert tuned.adjustment.changes
    callback = AdjustCallback(tuned, layer="fc")
    fit(plain, tmp_path)
    fit(module, tmp_path, callback)
    adjusted, trained = (net(X).detach().numpy() for net in (module, plain))
    np.testing.assert_allclose(adjusted, tuned.apply(trained), rtol=1e-4, atol=1e-5)
    assert callback.adjusted.rule == rule
    callback.adjusted.restore()
    assert torch.equal(module.fc.weight, plain.fc.weight)
    assert module.fc.bias is None


def test_a_second_fit_starts_from_the_head_before_its_shift(tmp_path):
    module, callback, watch = Net(), AdjustCallback(choice("offsets")), Watch()
    fit(module, tmp_path, callback)
    shifted = module.fc.bias.detach().clone()
    trained = module.fc.weight.detach().clone()
    fit(module, tmp_path, callback, watch)
    assert torch.equal(watch.heads[0], trained)
    assert torch.equal(module.fc.bias, shifted)  # once, not twice


def test_a_choice_for_other_classes_is_refused_before_the_first_step(tmp_path):
    watch = Watch()
    of_two = lh.tune(np.array([[4.0, 2.0], [4.0, 1.0], [1.0, 2.0]]), [0, 0, 1], [9, 3])
    with pytest.raises(ValueError, match="fc has 3 classes, but it was tuned on 2 classes"):
        fit(Net(), tmp_path, AdjustCallback(of_two), watch)
    with pytest.raises(FileNotFoundError, match="no such file"):
        fit(Net(), tmp_path, AdjustCallback(tmp_path / "tuned.json"), watch)
    assert watch.norms == []
