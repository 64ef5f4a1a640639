"""Small classifiers built offline: one of each class of transformers, and some of each family of timm.

`transformers_cases` and `timm_cases` yield a name and a function that builds a model and an input.
No table says how to make hundreds of architectures small, or what they take: sizes in a config are
guessed by the names of its fields (SMALL, OVERRIDES), inputs are tried one after another, and the
first that gives K logits is taken. What cannot be built so is counted as not built, with all that
was tried.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import nn

# Classes: a number that no size in a config has by chance.
K = 7
LARGEST = 150_000_000  # parameters
Case = tuple[nn.Module, dict[str, torch.Tensor]]  # a model and an input it can be run on


def logits(model: nn.Module, example: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return what a model gives for an input, [..., K]; raise ValueError if it has not K classes."""
    with torch.no_grad():
        if "x" in example:  # of timm
            output = model(example["x"])
        else:
            output = model(**example)
    if isinstance(output, torch.Tensor):
        values = output
    else:
        values = getattr(output, "logits", output[0])
    if values.shape[-1] != K:
        raise ValueError(f"gives outputs of shape {list(values.shape)}, not {K} classes")
    return values.double()


# transformers


def transformers_cases() -> Iterator[tuple[str, Callable[[], Case]]]:
    """Yield every class for whole texts and images; `Auto...` are these again."""
    import transformers

    transformers.logging.set_verbosity_error()
    for name in sorted(dir(transformers)):
        if re.search("For(Sequence|Image)Classification", name) and not name.startswith("Auto"):
            yield f"transformers/{name}", lambda name=name: transformers_case(name)


# Config fields, by what their names match, and the small values they get. The first match counts.
SMALL: tuple[tuple[str, Any], ...] = (
    (r"vocab_size|.*_vocab_size", 120),
    (
        r"(hidden|d_model|n_embd|embed|embedding|decoder_hidden|pooler_hidden)_?(size|dim)?|dim|model_dim",
        32,
    ),
    (
        r"emb_dim|d_embed|embed_dim|word_embed_proj_dim|true_hidden_size|intra_bottleneck_size|classifier_proj_size",
        32,
    ),
    (r"head_dim|attention_head_size|d_kv|d_head|kv_channels", 8),
    (r"(num_|n_)?(attention_heads|heads|head|key_value_heads|layer_heads)|num_query_heads", 4),
    (r"(encoder|decoder)_attention_heads|num_(self|cross)_attention_heads", 4),
    (
        r"(num_|n_|encoder_|decoder_)?(hidden_layers|layers|layer|blocks)|num_decoder_layers|num_encoder_layers",
        2,
    ),
    (
        r"intermediate_size|moe_intermediate_size|shared_expert_intermediate_size|ffn_dim|d_ff|d_inner|dff|n_inner"
        r"|(encoder|decoder)_ffn_dim|ffn_hidden_size|expert_intermediate_size|mlp_hidden_size",
        48,
    ),
    (r"(num_|n_)(local_|routed_)?experts|moe_num_experts", 4),
    (r"(num_|n_)?experts_per_(tok|token)|moe_k|top_k_experts", 2),
    (r"n_group|topk_group", 1),
    (r"q_lora_rank|kv_lora_rank", 16),
    (r"qk_nope_head_dim|v_head_dim|qk_rope_head_dim", 8),
    (r"(max_position_embeddings|n_positions|max_seq_len|max_sequence_length|n_ctx)", 64),
    (r"image_size|img_size", 64),
    (r"pad_token_id", 0),
    (r"eos_token_id", 2),
    (r"bos_token_id", 1),
    (r"(width|depth)_coefficient", 0.5),
)
# Which a config may leave open, and a model needs.
EVEN_IF_NONE = ("pad_token_id", "eos_token_id", "bos_token_id", "num_experts_per_tok")


def small_fields(config: Any) -> dict[str, Any]:
    """Return small values for every size in a config, and in the configs inside it."""
    fields: dict[str, Any] = {}
    for field, value in vars(config).items():
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            fields[field] = small_fields(value)
        elif field in ("depths", "num_block_repeats") and isinstance(value, list | tuple):
            fields[field] = [1] * len(value)
        elif type(value) in (int, float) or field in EVEN_IF_NONE:
            matches = [small for pattern, small in SMALL if re.fullmatch(pattern, field)]
            if matches:
                fields[field] = matches[0]
    return fields


def set_fields(config: Any, fields: dict[str, Any]) -> None:
    """Set fields of a config, and of the configs inside it."""
    for field, value in fields.items():
        if isinstance(value, dict):
            set_fields(getattr(config, field), value)
        else:
            with suppress(Exception):  # some configs compute a field from others
                setattr(config, field, value)


def configs(kind: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield configs to try: small values given to the constructor, small values set afterwards, and the default."""
    small = small_fields(kind.config_class()) | OVERRIDES.get(name, {})
    if name == "Qwen3_5ForSequenceClassification":
        small["text_config"] |= MIXED
    with suppress(Exception):
        yield "small", kind.config_class(**small)
    with suppress(Exception):
        config = kind.config_class()
        set_fields(config, small)
        yield "small, set", config
    yield "default", kind.config_class()


# What the rule above gets wrong, class by class.
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
PERCEIVER = {
    "num_latents": 8,
    "d_latents": 32,
    "d_model": 32,
    "num_self_attends_per_block": 1,
    "num_blocks": 1,
    "num_cross_attention_heads": 1,
    "num_self_attention_heads": 4,
    "image_size": 32,
}
MIXED = {"layer_types": ["linear_attention", "full_attention"]}
OVERRIDES: dict[str, dict[str, Any]] = {
    "EsmForSequenceClassification": {"vocab_size": 120},
    "GPTJForSequenceClassification": {"rotary_dim": 8},
    "HunYuanDenseV1ForSequenceClassification": {"head_dim": 8},
    "HunYuanMoEV1ForSequenceClassification": {"head_dim": 8},
    "MinistralForSequenceClassification": {"head_dim": 8},
    "NemotronForSequenceClassification": {"head_dim": 8, "num_key_value_heads": 4},
    "JambaForSequenceClassification": {
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "use_mamba_kernels": False,
    },
    "Mistral4ForSequenceClassification": {"head_dim": 16},
    "ShieldGemma2ForImageClassification": {"yes_token_index": 3, "no_token_index": 4},
    "PerceiverForImageClassificationConvProcessing": PERCEIVER,
    "PerceiverForImageClassificationFourier": PERCEIVER,
    "PerceiverForImageClassificationLearned": PERCEIVER,
    "PerceiverForSequenceClassification": PERCEIVER,
    "Qwen3NextForSequenceClassification": MIXED,
    "Qwen3_5TextForSequenceClassification": MIXED,
    "T5ForSequenceClassification": {"decoder_start_token_id": 0},
    "XmodForSequenceClassification": {"default_language": "en_XX"},
    "ZambaForSequenceClassification": {
        "layers_block_type": ["linear_attention", "hybrid"] * 2,
        "num_hidden_layers": 4,
    },
    "Zamba2ForSequenceClassification": {"layers_block_type": ["linear_attention", "hybrid"]},
    "CohereCompassTextForSequenceClassification": {
        "rope_parameters": {"full_attention": ROPE, "sliding_attention": ROPE},
        "layer_types": ["full_attention"] * 2,
    },
}


def transformers_case(name: str) -> Case:
    """Build a model by the first config that works, and find an input that it takes.

    Raises:
        ValueError: with all that was tried.
    """
    import transformers

    kind = getattr(transformers, name)
    failures = []
    for size, config in configs(kind, name):
        try:
            for part in (config, getattr(config, "text_config", None)):
                if part is not None:
                    part.num_labels = K
                    part.pad_token_id = 0
            check_size(lambda config=config: kind(config))
            model = kind(config).float().eval()
        except Exception as error:
            failures.append(f"{size} config: {type(error).__name__}: {error}")
            continue
        for example in inputs(name, config):
            try:
                logits(model, example)
                return model, example
            except Exception as error:
                failures.append(
                    f"{size} config, {', '.join(example)}: {type(error).__name__}: {error}"
                )
    raise ValueError(" | ".join(dict.fromkeys(" ".join(text.split())[:160] for text in failures)))


def inputs(name: str, config: Any) -> Iterator[dict[str, torch.Tensor]]:
    """Yield inputs to try, the most usual first."""
    generator = torch.Generator().manual_seed(0)
    if "ForImageClassification" in name:
        inner = getattr(config, "vision_config", config)
        size = getattr(inner, "image_size", None) or 64
        sides = (size, size)
        if isinstance(size, list | tuple):
            sides = size
        for height, width in dict.fromkeys([tuple(sides), (64, 64), (224, 224)]):
            shape = (1, getattr(inner, "num_channels", 3), height, width)
            yield {"pixel_values": torch.randn(shape, generator=generator)}
        yield {
            "pixel_values": torch.randn(1, 4, 768, generator=generator),  # patches, already cut out
            "pixel_attention_mask": torch.ones(1, 4, dtype=torch.long),
            "spatial_shapes": torch.tensor([[2, 2]]),
        }
        yield {"input_ids": torch.randint(3, 100, (1, 16), generator=generator)}
        return
    ids = torch.randint(5, 100, (2, 16), generator=generator)
    eos = getattr(config, "eos_token_id", None)
    # A decoder scores a text at its end.
    ids[:, -1] = 2
    if isinstance(eos, int) and 0 <= eos < 120:
        ids[:, -1] = eos
    yield {"input_ids": ids}
    yield {"inputs": ids}
    yield {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    yield {"input_values": torch.randn(1, 8000, generator=generator)}
    yield {"input_features": torch.randn(1, 64, 160, generator=generator)}
    yield {"input_ids": ids.repeat(1, 4)}


# timm


def timm_cases(per_family: int = 4) -> Iterator[tuple[str, Callable[[], Case]]]:
    """Yield the smallest models of every family, by their names."""
    import timm

    # Words in names, from the smallest models on.
    order = (
        "test",
        "atto",
        "femto",
        "pico",
        "nano",
        "xxs",
        "xxt",
        "tiny",
        "_t",
        "xs",
        "mini",
        "micro",
        "_s",
        "small",
        "0",
        "1",
        "18",
        "26",
        "lite",
        "50",
        "base",
        "b",
    )

    def size_by_name(name: str) -> tuple[int, int, str]:
        rank = next((i for i, word in enumerate(order) if word in name), len(order))
        return rank, len(name), name

    for family in timm.list_modules():
        names = sorted(timm.list_models(module=family), key=size_by_name)
        for name in names[:per_family]:
            yield f"timm/{family}/{name}", lambda name=name: timm_case(name)


# A shallow model has the head of a deep one. The first set of options that a model takes is used.
SHALLOW = (
    {"depth": 2},
    {"depths": (1, 1, 1, 1)},
    {"layers": (1, 1, 1, 1)},
    {"depths": (1, 1, 1)},
    {},
)


def timm_case(name: str) -> Case:
    """Build a model as shallow and for images as small as it lets itself be built, and find an input
    that it takes.

    Raises:
        ValueError: with all that was tried.
    """
    import timm

    config = {}
    if timm.is_model_pretrained(name):
        config = timm.get_pretrained_cfg(name).to_dict()
    channels, _, side = config.get("input_size") or (3, 224, 224)
    failures = []
    for shallow in SHALLOW:
        for size in dict.fromkeys([64, 128, side]):
            options = dict(shallow)
            # A model whose images have one size must be told of another.
            if config.get("fixed_input_size", True) and size != side:
                options["img_size"] = size
            try:
                make = partial(timm.create_model, name, num_classes=K, **options)
                check_size(make)
                model = make().eval()
                generator = torch.Generator().manual_seed(0)
                example = {"x": torch.randn(1, channels, size, size, generator=generator)}
                logits(model, example)
                return model, example
            except Exception as error:
                failures.append(f"{options}: {type(error).__name__}: {error}")
    raise ValueError(
        " | ".join(dict.fromkeys(" ".join(text.split())[:120] for text in failures[::-1]))
    )


def check_size(build: Callable[[], nn.Module]) -> None:
    """Raise ValueError for a model that would not fit, built on the meta device. Do nothing if that fails."""
    try:
        with torch.device("meta"):
            size = sum(p.numel() for p in build().parameters())
    except Exception:
        return
    if size > LARGEST:
        raise ValueError(f"{size / 1e6:.0f} million parameters, more than {LARGEST / 1e6:.0f}")
