"""The note in a model's config: an adjustment is noticed after `save_pretrained` and `from_pretrained`."""

import copy
import json

import pytest
import torch
from transformers import BertForSequenceClassification

import levelhead as lh
from levelhead.files.inspect import inspect_file
from levelhead.files.model import adjust_file

from ..hosts.small_bert import small_bert

pytestmark = pytest.mark.slow  # the library takes seconds to import

COUNTS = [100, 25, 4]


def reload(model, folder):
    model.save_pretrained(folder)
    return BertForSequenceClassification.from_pretrained(folder)


def shift():
    logits = (
        3
        + torch.randn(60, 3, generator=torch.Generator().manual_seed(1))
        + torch.tensor([2.0, 1.0, 0.0])
    )
    return lh.tune_unlabelled(logits, counts=COUNTS, rule="shift")


def test_second_adjustment_after_a_reload_is_noticed(tmp_path):
    model = small_bert()
    lh.rescale_(model, COUNTS, gamma=0.5)
    loaded = reload(model, tmp_path / "a")
    for again in (
        lambda: lh.rescale_(loaded, COUNTS, gamma=0.5),
        lambda: lh.adjust_(loaded, shift()),
    ):
        with pytest.raises(
            ValueError, match=r"classifier was adjusted already \(rescale, strength 0\.5\).*again"
        ):
            again()
    assert torch.equal(loaded.classifier.weight, model.classifier.weight)
    lh.rescale_(loaded, COUNTS, gamma=0.5, again=True)


def test_note_says_what_was_done_and_goes_with_restore(tmp_path):
    model, tuned = small_bert(), shift()
    adjusted = lh.adjust_(model, tuned)
    loaded = reload(model, tmp_path / "a")
    note = json.loads((tmp_path / "a" / "config.json").read_text())["levelhead"]
    assert (note["rule"], note["strength"], note["head"]) == (
        "shift",
        tuned.strength,
        ["classifier"],
    )
    assert (note["scale"], note["offset"]) == ([1.0] * 3, tuned.adjustment.offset.tolist())
    assert (note["counts"], note["version"]) == (COUNTS, lh.__version__)
    with pytest.raises(ValueError, match="adjusted already"):
        lh.adjust_(loaded, tuned)
    adjusted.restore()
    assert not hasattr(model.config, "levelhead")
    lh.adjust_(reload(model, tmp_path / "b"), tuned)


def test_head_trained_since_may_be_adjusted(tmp_path):
    model = small_bert()
    lh.rescale_(model, COUNTS, gamma=0.5)
    loaded = reload(model, tmp_path)
    with torch.no_grad():
        loaded.classifier.weight.mul_(1.01)
    lh.rescale_(loaded, COUNTS, gamma=0.25)
    assert loaded.config.levelhead["strength"] == 0.25


@pytest.mark.parametrize(
    "note", [3, {}, {"rule": "shift"}, {"rule": ["x"], "strength": 1, "sha256": 2}]
)
def test_note_of_another_kind_is_not_read(note):
    model = small_bert()
    model.config.levelhead = note
    lh.rescale_(model, COUNTS, gamma=0.5).restore()
    assert model.config.levelhead == note


@pytest.mark.parametrize("rule", ["rescale", "shift"])
def test_file_of_a_model_that_was_adjusted_in_memory_is_noticed(tmp_path, rule):
    model, (folder, out) = small_bert(), (tmp_path / "a", tmp_path / "out")
    if rule == "shift":
        lh.adjust_(model, shift())
    else:
        lh.rescale_(model, COUNTS, gamma=0.5)
    model.save_pretrained(folder)
    for path, to in ((folder, out), (folder / "model.safetensors", tmp_path / "out.safetensors")):
        for again in (
            lambda p, o: adjust_file(p, o, lh.rules.Rescale(0.5), COUNTS),
            lambda p, o: adjust_file(p, o, shift()),
        ):
            with pytest.raises(
                ValueError, match=rf"was adjusted before \({rule}, strength .*again"
            ):
                again(path, to)
        assert not to.exists()
        assert any("adjusted before" in line for line in inspect_file(path).warnings)
    adjust_file(folder, out, lh.rules.Rescale(0.5), COUNTS, again=True)
    with torch.no_grad():
        model.classifier.weight.mul_(1.01)
        model.classifier.bias.add_(0.01)
    model.save_pretrained(folder)  # trained since, by a trainer that keeps the config
    adjust_file(folder, tmp_path / "trained", lh.rules.Rescale(0.5), COUNTS)


@pytest.mark.parametrize("size", ["5GB", "2KB"])
@pytest.mark.parametrize("rule", ["rescale", "shift"])
def test_model_loaded_from_an_adjusted_file_is_noticed(tmp_path, size, rule):
    small_bert().save_pretrained(tmp_path / "plain", max_shard_size=size)
    if rule == "shift":
        adjust_file(tmp_path / "plain", tmp_path / "leveled", shift())
    else:
        adjust_file(tmp_path / "plain", tmp_path / "leveled", lh.rules.Rescale(0.5), COUNTS)
    loaded = BertForSequenceClassification.from_pretrained(tmp_path / "leveled")
    for again in (
        lambda: lh.rescale_(loaded, COUNTS, gamma=0.5),
        lambda: lh.adjust_(loaded, shift()),
    ):
        with pytest.raises(ValueError, match=r"classifier was adjusted already.*again"):
            again()
    with torch.no_grad():
        loaded.classifier.weight.mul_(1.01)
        loaded.classifier.bias.add_(0.01)
    lh.rescale_(loaded, COUNTS, gamma=0.5)
    lh.rescale_(
        BertForSequenceClassification.from_pretrained(tmp_path / "plain"), COUNTS, gamma=0.5
    )


@pytest.mark.parametrize("content", [b"", b"{", b"x" * 40, None])
def test_damaged_files_next_to_a_model_in_memory_do_no_harm(tmp_path, content):
    small_bert().save_pretrained(tmp_path)
    loaded = BertForSequenceClassification.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()  # the model maps its bytes
    if content is not None:
        (tmp_path / "model.safetensors").write_bytes(content)
    before = loaded.classifier.weight.detach().clone()
    lh.rescale_(loaded, COUNTS, gamma=0.5)
    factors = torch.tensor([1.0, 2.0, 5.0], dtype=before.dtype)
    torch.testing.assert_close(loaded.classifier.weight.detach(), before * factors[:, None])


HALVES = [torch.bfloat16, torch.float16, torch.float32]


@pytest.mark.parametrize("saved", HALVES)
@pytest.mark.parametrize("held", HALVES)
@pytest.mark.parametrize("rule", ["rescale", "shift"])
def test_second_adjustment_is_noticed_in_another_precision(tmp_path, saved, held, rule):
    """Models are often adjusted in one precision and saved in another."""
    model = small_bert().to(held)
    lh.adjust_(model, shift()) if rule == "shift" else lh.rescale_(model, COUNTS, gamma=0.5)
    with pytest.raises(ValueError, match="adjusted already"):
        lh.rescale_(copy.deepcopy(model).to(saved), COUNTS, gamma=0.5)
    model.to(saved).save_pretrained(tmp_path / "a")
    loaded = BertForSequenceClassification.from_pretrained(tmp_path / "a")
    with pytest.raises(ValueError, match=r"classifier was adjusted already.*again"):
        lh.rescale_(loaded, COUNTS, gamma=0.5)
    with pytest.raises(ValueError, match=r"was adjusted before.*again"):
        adjust_file(tmp_path / "a", tmp_path / "out", lh.rules.Rescale(0.5), COUNTS)


@pytest.mark.parametrize("rule", ["rescale", "shift"])
def test_adjusted_file_loaded_in_another_precision_is_noticed(tmp_path, rule):
    small_bert().save_pretrained(tmp_path / "plain")
    if rule == "shift":
        adjust_file(tmp_path / "plain", tmp_path / "leveled", shift())
    else:
        adjust_file(tmp_path / "plain", tmp_path / "leveled", lh.rules.Rescale(0.5), COUNTS)
    for dtype in (torch.bfloat16, torch.float16):
        loaded = BertForSequenceClassification.from_pretrained(tmp_path / "leveled", dtype=dtype)
        with pytest.raises(ValueError, match="adjusted already"):
            lh.rescale_(loaded, COUNTS, gamma=0.5)
