"""A Hugging Face folder that was adjusted is complete: `from_pretrained` loads model and tokenizer from it."""

import json

import pytest
import torch
from safetensors.numpy import save_file

import levelhead as lh
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file

COUNTS = [100, 25, 4]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def folder(tmp_path):
    """A folder as the Trainer leaves it, with files that are no part of the model."""
    place = tmp_path / "model"
    place.mkdir()
    weight = torch.eye(3, 4).numpy()
    save_file(
        {
            "body.weight": weight.T.copy(),
            "classifier.weight": weight,
            "classifier.bias": weight[:, 0].copy(),
        },
        place / "model.safetensors",
    )
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "README.md"):
        (place / name).write_text(json.dumps({"name": name}))
    for name in ("vocab.txt", "spiece.model", "LICENSE", "preprocessor_config.json"):
        (place / name).write_bytes(b"\x00\xff" + name.encode())
    for name in ("optimizer.pt", "training_args.bin", "pytorch_model.bin", ".gitattributes"):
        (place / name).write_bytes(b"other")
    (place / "runs").mkdir()
    (place / "runs" / "events").write_bytes(b"log")
    return place


def test_everything_but_other_weights_and_state_is_copied(folder, tmp_path):
    done = adjust_file(folder, tmp_path / "out", lh.rules.Rescale(0.5), COUNTS)
    before, after = contents(folder), contents(tmp_path / "out")
    left = {"optimizer.pt", "training_args.bin", "pytorch_model.bin", ".gitattributes"}
    assert set(after) == set(before) - left
    assert {name for name in after if after[name] != before[name]} == {"model.safetensors"}
    assert any(
        "left out: optimizer.pt, pytorch_model.bin, runs, training_args.bin" in note
        for note in done.notes
    )


@pytest.mark.parametrize("kept", [True, False])
def test_undo_gives_the_whole_folder_back(folder, tmp_path, kept):
    adjust_file(folder, tmp_path / "out", lh.rules.Rescale(0.5), COUNTS, original=kept)
    assert undo_file(tmp_path / "out", tmp_path / "back").exact == kept
    after = contents(tmp_path / "back")
    assert after.keys() == contents(tmp_path / "out").keys()
    assert all(
        after[name] == data
        for name, data in contents(folder).items()
        if name in after and (kept or name != "model.safetensors")
    )


def test_link_that_leads_out_of_the_folder_is_not_copied_as_content(folder, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("of somebody")
    (folder / "notes.txt").symlink_to(secret)
    (folder / "merges.txt").symlink_to("config.json")
    (folder / "loop").symlink_to("loop")
    done = adjust_file(folder, tmp_path / "o", lh.rules.Rescale(0.5), COUNTS)
    assert "notes.txt" not in contents(tmp_path / "o")
    assert (tmp_path / "o/merges.txt").read_bytes() == (folder / "config.json").read_bytes()
    assert any("notes.txt (a link that leads out of the folder)" in note for note in done.notes)


def test_folder_of_links_as_hugging_face_keeps_them_is_copied_whole(folder, tmp_path):
    blobs, snapshot = tmp_path / "cache/blobs", tmp_path / "cache/snapshots/0a1b"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, path in enumerate(file for file in sorted(folder.iterdir()) if file.is_file()):
        path.rename(blobs / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    done = adjust_file(snapshot, tmp_path / "o", lh.rules.Rescale(0.5), COUNTS)
    assert (tmp_path / "o/config.json").read_bytes() == (snapshot / "config.json").read_bytes()
    assert not any("a link that leads out" in note for note in done.notes)


def test_file_by_itself_is_written_without_company(folder, tmp_path):
    adjust_file(
        folder / "model.safetensors", tmp_path / "one.safetensors", lh.rules.Rescale(0.5), COUNTS
    )
    assert {path.name for path in tmp_path.iterdir()} == {
        "model",
        "one.safetensors",
        "one.safetensors.original",
    }


def test_existing_folder_is_not_mixed_with_the_new_one(folder, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "config.json").write_text("mine")
    with pytest.raises(FileExistsError):
        adjust_file(folder, tmp_path / "out", lh.rules.Rescale(0.5), COUNTS)
    assert contents(tmp_path / "out") == {"config.json": b"mine"}


@pytest.mark.slow  # the library takes seconds to import
def test_adjusted_folder_loads_by_from_pretrained(tmp_path):
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        BertConfig,
        BertForSequenceClassification,
        BertTokenizerFast,
    )

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "fine"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    tokenizer = BertTokenizerFast(str(tmp_path / "vocab.txt"))
    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(vocab_size=8, num_labels=3, **sizes)).eval()
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")

    scores = (
        3
        + torch.randn(60, 3, generator=torch.Generator().manual_seed(1))
        + torch.tensor([2.0, 1.0, 0.0])
    )
    tuned = lh.tune_unlabelled(scores, counts=COUNTS, rule="shift")
    adjust_file(tmp_path / "model", tmp_path / "out", tuned)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    inputs = AutoTokenizer.from_pretrained(tmp_path / "out")(
        ["good bad", "fine"], padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        moved = loaded(**inputs).logits - model(**inputs).logits
    by = tuned.strength * torch.tensor([1.0, 4.0, 25.0]).log()
    torch.testing.assert_close(moved, by.expand(2, 3), rtol=1e-4, atol=1e-5)
