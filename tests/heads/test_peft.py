"""PEFT's adapters: the active adapter's head is the one adjusted, saved and loaded; the original module never is."""

import json

import pytest
import torch
from peft import (
    AutoPeftModelForSequenceClassification,
    IA3Config,
    LoraConfig,
    PeftModel,
    get_peft_model,
)
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
)

import levelhead as lh
from levelhead.files.model import adjust_file
from levelhead.heads.adjust import rescale_
from levelhead.heads.notes import drop_note
from levelhead.heads.torch import read
from levelhead.heads.torch_find import find_head, linear_layers

pytestmark = pytest.mark.slow  # the libraries take seconds to import

COUNTS = [100, 25, 4]
FACTORS = torch.tensor([1.0, 2.0, 5.0])
IDS = torch.arange(1, 11).reshape(2, 5)
SMALL = {
    "vocab_size": 20,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "num_labels": 3,
    "pad_token_id": 0,
}
MODELS = {
    "bert": (BertForSequenceClassification, BertConfig, "query", "classifier", ""),
    "roberta": (
        RobertaForSequenceClassification,
        RobertaConfig,
        "query",
        "classifier",
        ".out_proj",
    ),
    "llama": (LlamaForSequenceClassification, LlamaConfig, "q_proj", "score", ""),
}


def base(kind):
    network, config, *_ = MODELS[kind]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return network(config(**SMALL))


def adapted(kind):
    lora = LoraConfig(
        task_type="SEQ_CLS", r=2, target_modules=[MODELS[kind][2]], init_lora_weights=False
    )
    return get_peft_model(base(kind), lora).eval()


def logits(model):
    with torch.no_grad():
        return model(input_ids=IDS).logits


def path_of(kind, adapter="default"):
    *_, name, inner = MODELS[kind]
    return f"base_model.model.{name}.modules_to_save.{adapter}{inner}"


@pytest.mark.parametrize("kind", MODELS)
def test_active_head_is_adjusted_saved_and_loaded(kind, tmp_path):
    model = adapted(kind)
    before = logits(model)
    assert rescale_(model, COUNTS, gamma=0.5).layers == (path_of(kind),)
    assert torch.allclose(logits(model), before * FACTORS, atol=1e-5)
    model.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(base(kind), tmp_path).eval()
    assert torch.allclose(logits(loaded), before * FACTORS, atol=1e-5)


def test_adapter_file_is_adjusted_as_the_model_is(tmp_path):
    model = adapted("bert")
    before = logits(model)
    model.save_pretrained(tmp_path / "a")
    model.save_pretrained(tmp_path / "b")
    source, out = (tmp_path / part / "adapter_model.safetensors" for part in "ab")
    adjust_file(source, out, lh.rules.Rescale(0.5), COUNTS, force=True)
    loaded = PeftModel.from_pretrained(base("bert"), tmp_path / "b").eval()
    assert torch.allclose(logits(loaded), before * FACTORS, atol=1e-5)


def test_head_is_that_of_the_adapter_set_last():
    model = adapted("bert")
    model.add_adapter("other", model.peft_config["default"])
    model.set_adapter("other")
    before = logits(model)
    assert rescale_(model, COUNTS, gamma=0.5).layers == (path_of("bert", "other"),)
    assert torch.allclose(logits(model), before * FACTORS, atol=1e-5)
    model.set_adapter("default")
    assert list(find_head(model)) == [path_of("bert")]


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_original_module_is_neither_offered_nor_taken(kind):
    model = adapted(kind)
    model.add_adapter("other", model.peft_config["default"])
    assert not any("original_module" in path or "other" in path for path, _ in linear_layers(model))
    wrapper, inner = f"base_model.model.{MODELS[kind][3]}", MODELS[kind][4]
    for unused in ("original_module", "modules_to_save.other"):
        layer = f"{wrapper}.{unused}{inner}"
        for name_or_module in (layer, model.get_submodule(layer)):
            with pytest.raises(ValueError, match=r"is not used.*modules_to_save\.default") as error:
                rescale_(model, COUNTS, gamma=0.5, layer=name_or_module)
            assert layer in str(error.value)
    assert (
        list(find_head(model, layer=wrapper))
        == list(find_head(model, layer=path_of(kind)))
        == [path_of(kind)]
    )
    assert list(find_head(model, example={"input_ids": IDS})) == [path_of(kind)]


def test_disabled_adapters_are_refused():
    model = adapted("bert")
    with model.disable_adapter(), pytest.raises(ValueError, match="no adapter is active"):
        find_head(model)
    assert read(model).classes == 3


def test_bias_that_peft_would_lose_is_refused():
    tuned = lh.tune_unlabelled(torch.randn(50, 3).numpy(), counts=COUNTS, rule="shift")
    model = adapted("llama")
    with pytest.raises(ValueError, match=r"bias.*PEFT.*not load"):
        lh.adjust_(model, tuned)
    assert model.get_submodule(path_of("llama")).bias is None
    bert = adapted("bert")
    before = logits(bert)
    done = lh.adjust_(bert, tuned)
    assert torch.allclose(
        logits(bert), before + torch.tensor(done.adjustment.offset, dtype=torch.float32), atol=1e-5
    )


def reload(model, folder, kind="bert"):
    model.save_pretrained(folder)
    return PeftModel.from_pretrained(base(kind), folder).eval()


@pytest.mark.parametrize("kind", MODELS)
def test_second_adjustment_of_a_reloaded_adapter_is_noticed(kind, tmp_path):
    model = adapted(kind)
    adjusted = rescale_(model, COUNTS, gamma=0.5)
    loaded = reload(model, tmp_path / "a", kind)
    with pytest.raises(ValueError, match=r"was adjusted already \(rescale, strength 0\.5\).*again"):
        rescale_(loaded, COUNTS, gamma=0.5)
    again = reload(loaded, tmp_path / "b", kind)  # the note goes on with the adapter
    with pytest.raises(ValueError, match="was adjusted already"):
        rescale_(again, COUNTS, gamma=0.5)
    rescale_(again, COUNTS, gamma=0.5, again=True)
    adjusted.restore()
    rescale_(reload(model, tmp_path / "c", kind), COUNTS, gamma=0.5)


def test_note_of_an_adapter_is_where_peft_reads_past_it(tmp_path):
    model = adapted("bert")
    before = model.peft_config["default"].peft_version
    adjusted = rescale_(model, COUNTS, gamma=0.5)
    model.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "adapter_config.json").read_text())["peft_version"]
    version, _, note = written.partition("@levelhead:")
    assert version == written.partition("@")[0] == before  # how PEFT reads a version
    assert json.loads(note)["counts"] == COUNTS
    adjusted.restore()
    assert model.peft_config["default"].peft_version == before


def test_head_of_an_adapter_trained_since_may_be_adjusted(tmp_path):
    model = adapted("bert")
    rescale_(model, COUNTS, gamma=0.5)
    loaded = reload(model, tmp_path)
    with torch.no_grad():
        loaded.get_submodule(path_of("bert")).weight.mul_(1.01)
    rescale_(loaded, COUNTS, gamma=0.25)
    assert '"strength": 0.25' in loaded.peft_config["default"].peft_version
    assert loaded.peft_config["default"].peft_version.count("levelhead:") == 1


def test_note_is_of_the_adapter_that_was_adjusted(tmp_path):
    model = adapted("bert")
    model.add_adapter("other", LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"]))
    model.set_adapter("other")
    rescale_(model, COUNTS, gamma=0.5)
    assert "levelhead" not in model.peft_config["default"].peft_version
    model.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(base("bert"), tmp_path / "other", adapter_name="x").eval()
    with pytest.raises(ValueError, match="was adjusted already"):
        rescale_(loaded, COUNTS, gamma=0.5)
    rescale_(PeftModel.from_pretrained(base("bert"), tmp_path).eval(), COUNTS, gamma=0.5)


def test_note_of_other_adapters_and_other_ways_to_load_them(tmp_path):
    config = IA3Config(task_type="SEQ_CLS", target_modules=["key"], feedforward_modules=[])
    model = get_peft_model(base("bert"), config).eval()
    base("bert").save_pretrained(tmp_path / "base")
    config.base_model_name_or_path = str(tmp_path / "base")
    rescale_(model, COUNTS, gamma=0.5)
    model.save_pretrained(tmp_path / "ia3")
    loaded = AutoPeftModelForSequenceClassification.from_pretrained(
        tmp_path / "ia3", num_labels=3
    ).eval()
    with pytest.raises(ValueError, match="was adjusted already"):
        rescale_(loaded, COUNTS, gamma=0.5)


def test_adapter_loaded_by_transformers_is_noticed(tmp_path):
    model = adapted("bert")
    rescale_(model, COUNTS, gamma=0.5)
    model.save_pretrained(tmp_path)
    loaded = base("bert")
    loaded.load_adapter(str(tmp_path))
    with pytest.raises(ValueError, match="was adjusted already"):
        rescale_(loaded.eval(), COUNTS, gamma=0.5)


def test_file_of_an_adapter_that_was_adjusted_in_memory_is_noticed(tmp_path):
    model = adapted("bert")
    rescale_(model, COUNTS, gamma=0.5)
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"was adjusted before \(rescale, strength 0\.5\).*again"):
        adjust_file(
            tmp_path / "adapter_model.safetensors",
            tmp_path / "out.safetensors",
            lh.rules.Rescale(0.5),
            COUNTS,
        )


def test_training_drops_the_note_of_the_active_adapter_only():
    model = adapted("bert")
    rescale_(model, COUNTS, gamma=0.5)
    model.add_adapter("other", LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"]))
    model.set_adapter("other")
    drop_note(model)
    assert "levelhead" in model.peft_config["default"].peft_version
    model.set_adapter("default")
    drop_note(model)
    assert "levelhead" not in model.peft_config["default"].peft_version


def test_note_outlasts_merging(tmp_path):
    model = adapted("bert")
    rescale_(model, COUNTS, gamma=0.5)
    model.merge_and_unload().save_pretrained(tmp_path / "merged")
    with pytest.raises(ValueError, match="was adjusted already"):
        rescale_(
            BertForSequenceClassification.from_pretrained(tmp_path / "merged"), COUNTS, gamma=0.5
        )
