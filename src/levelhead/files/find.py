r"""Which of a file's tensors are the classifier's head, by name and shape alone: never guessed.

In this order: what the caller names, the names that model zoos give their heads, the only matrix with one row per
class. More than one left: stop and list them. Weights that are not plain numbers (quantized, weight-normed,
LoRA-wrapped, shared with another layer) are refused with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from ..core.errors import LevelheadError
from .spans import SIZES, Place, Span


class NoHead(LevelheadError):
    """No tensor has the shape that was asked for: perhaps it was asked for wrongly."""


Layers = Mapping[str, Span]  # layer -> its weight

# Where libraries keep their heads. Those in one row feed one output together, and are scaled together.
TOGETHER = (
    ("head", "head_dist"),
    ("head", "dist_head"),
    ("heads", "heads_dist"),
    ("head", "aux_head"),
    ("head.head", "head.head_dist"),
    ("cls_classifier", "distillation_classifier"),
    ("classifier", "classifier_distill"),
)
ALONE = (
    "fc",
    "classifier",
    "head",
    "heads",
    "score",
    "classification_head",
    "out_proj",
    "logits_proj",
    "last_linear",
    "linear",
    "classif",
    "cls_head",
    "fc_out",
    "output",
    "out",
    "logits",
)
# What is put around a whole model: by DDP, torch.compile, PEFT, Lightning, or by whoever saved the state dict.
WRAPPER = re.compile(
    r"((module|model|_orig_mod|base_model|net|network|ema|state_dict|model_state_dict|model_ema|state_dict_ema)\.)*"
)

# What a layer has beside its weight, or instead of it, and why it is then refused.
NOT_PLAIN = (
    (
        r"weight_g|weight_v|weight_orig|weight_u|weight_mask|parametrizations\.weight\..*",
        "is parametrized (weight_norm, pruning or the like); remove the parametrization and save the model again",
    ),
    (r"lora_.*|base_layer\..*", "is wrapped by LoRA; merge the adapter (merge_and_unload) and save the model again"),
    (
        r"qweight|qzeros|scales|g_idx|SCB|weight\.(absmax|quant.*|nested.*)|weight_scale.*|weight_zero_point|"
        r"_packed_params.*|zero_point|scale_inv",
        "is quantized; adjust the model before quantizing it",
    ),
    (
        r"scale|sigma|logit_scale|weight_norm",
        "has a scale of its own, as cosine heads do, which normalize their weights",
    ),
)


def find_layers(
    path: Path, spans: Mapping[str, Span], *, named: str | None = None, classes: int | None = None
) -> tuple[Place, ...]:
    """The places of the head among all tensors of a model.

    Args:
        path: the model's file, for messages.
        spans: every tensor, by key.
        named: the layer (`fc`) or its weight (`fc.weight`), if the caller says so; `a,b` if they feed one output.
        classes: K, if known.
    """
    layers = {
        key.removesuffix("weight").rstrip("."): span for key, span in spans.items() if key.split(".")[-1] == "weight"
    }
    if named is not None:
        found = [_named(path, one.removesuffix(".weight"), spans, layers, classes) for one in named.split(",")]
        if len(set(found)) < len(found):
            raise LevelheadError(f"{path}: --head {named} names a layer twice")
    else:
        found = _known(path, spans, layers, classes) or _only(path, layers, classes)
    places = tuple(_place(path, layer, spans, layers) for layer in found)
    for place in places:
        _check_unnormed(path, place, spans)
    _check_untied(path, places, spans)
    return places


def candidates(layers: Layers, classes: int | None = None, *, least: int = 2) -> list[str]:
    """Layers of a head's shape: [K, d] or [K, d, 1, 1], K at least so many; embeddings and adapters are none."""
    return [
        layer
        for layer, weight in layers.items()
        if len(weight.logical) >= 2
        and all(n == 1 for n in weight.logical[2:])
        and (weight.logical[0] == classes if classes else weight.logical[0] >= least)
        and not re.search(r"embed|\bwte\b|\bwpe\b|lora_|relative_position|lm_head", layer, re.IGNORECASE)
    ]


def _named(path: Path, layer: str, spans: Mapping[str, Span], layers: Layers, classes: int | None) -> str:
    _check_plain(path, layer, spans)
    if layer not in layers:
        near = candidates(layers, classes) or candidates(layers)
        raise LevelheadError(f"{path}: no layer {layer!r}; layers of a head's shape: {_listed(near, layers)}")
    shape = layers[layer].logical
    if len(shape) < 2 or any(n != 1 for n in shape[2:]):
        raise LevelheadError(f"{path}: {layer} has a weight of shape {list(shape)}; expected [K, d] or [K, d, 1, 1]")
    return layer


def _known(path: Path, spans: Mapping[str, Span], layers: Layers, classes: int | None) -> list[str]:
    """The layers under names that libraries give their heads; one of a single logit if there is no other."""
    for layer in sorted({_owner(key) for key in spans} - layers.keys()):
        if _bare(layer) in ALONE:
            _check_plain(path, layer, spans)
    fitting = candidates(layers, classes, least=1)
    for pair in TOGETHER:
        ends = [_ends(block, fitting, layers) for block in pair]
        if all(len(end) == 1 for end in ends):
            return _sole(path, [end[0] for end in ends], layers)
    hits = [layer for block in ALONE for layer in _ends(block, fitting, layers)]
    hits = [layer for layer in hits if layers[layer].logical[0] > 1] or hits
    if len(hits) > 1:
        raise LevelheadError(_several(path, hits, layers))
    return _sole(path, hits, layers)


def _ends(block: str, fitting: list[str], layers: Layers) -> list[str]:
    """A block's layers that may be its last: itself, or the last of a Sequential, or all that fit."""
    inside = [layer for layer in fitting if f"{_bare(layer)}.".startswith(f"{block}.")]
    direct = [layer for layer in inside if _bare(layer) == block]
    numbered = {
        int(layer.rpartition(".")[2]): layer for layer in inside if re.fullmatch(r"\d+", _bare(layer)[len(block) + 1 :])
    }
    chain = [layers[numbered[i]].logical for i in sorted(numbered)]
    if len(numbered) == len(inside) and all(one[0] == after[1] for one, after in pairwise(chain)):
        return [numbered[max(numbered)]] if numbered else []
    return direct or inside


def _sole(path: Path, found: list[str], layers: Layers) -> list[str]:
    """The same layers, if no other matrix with as many rows could feed the output beside them."""
    rivals = [
        layer
        for layer in candidates(layers, layers[found[0]].logical[0] if found else -1)
        if layer not in found
        and len(layers[layer].logical) == 2
        and not _feeds_a_neighbor(layer, layers)
        and layer.rpartition(".")[0] not in {one.rpartition(".")[0] for one in found if "." in one}
    ]
    if rivals:
        raise LevelheadError(_several(path, [*found, *rivals], layers))
    return found


def _feeds_a_neighbor(layer: str, layers: Layers) -> bool:
    """Whether the layer is a hidden one whose width happens to be K: a layer of the same block takes K inputs."""
    block, rows = layer.rpartition(".")[0], layers[layer].logical[0]
    return bool(block) and any(
        other.rpartition(".")[0] == block and other != layer and rows in weight.logical[1:2]
        for other, weight in layers.items()
    )


def _only(path: Path, layers: Layers, classes: int | None) -> list[str]:
    """The one layer of a head's shape."""
    found = candidates(layers, classes)
    if len(found) > 1:
        raise LevelheadError(_several(path, found, layers))
    if not found:
        rows = "" if classes is None else f" with {classes} rows, one per class"
        others = candidates(layers)
        hint = f"layers of a head's shape: {_listed(others, layers)}" if others else "is it a backbone alone?"
        raise NoHead(f"{path}: no head found, no weight matrix [K, d]{rows}; {hint}")
    return found


def _place(path: Path, layer: str, spans: Mapping[str, Span], layers: Layers) -> Place:
    _check_plain(path, layer, spans)
    weight, bias = layers[layer], spans.get(f"{layer}.bias" if layer else "bias")
    if bias is not None and bias.shape != weight.logical[:1]:
        raise LevelheadError(f"{path}: {bias.key} has shape {list(bias.shape)}, not [{weight.logical[0]}], one per class")
    place = Place(layer, weight, bias)
    for span in place.spans:
        if span.dtype not in SIZES:
            plain = "adjust the model before quantizing" if "," not in span.dtype else "save it as a plain tensor"
            raise LevelheadError(f"{path}: {span.key} holds {span.dtype}; expected F64, F32, F16 or BF16: {plain}")
    return place


def _check_unnormed(path: Path, place: Place, spans: Mapping[str, Span]) -> None:
    """No norm of K numbers may follow the head, for it would undo the scaling.

    A file need not have its tensors in the model's order. Of numbered layers the later one follows; of others, a norm
    beside the head must be the head's if nothing else in the file takes or gives K numbers.
    """
    rows, columns = place.weight.logical[:2]
    block, _, name = place.key.rpartition(".")
    others = [span.logical[:2] for span in spans.values() if len(span.logical) > 1 and span is not place.weight]
    for key, span in spans.items():
        layer, _, leaf = key.rpartition(".")
        inside, _, beside = layer.rpartition(".")
        if span.shape != (rows,) or rows == columns or inside != block or layer == place.key or not beside:
            continue
        paired = spans.get(f"{layer}.bias")
        if leaf != "running_mean" and not (
            leaf == "weight" and ((paired and paired.shape == span.shape) or re.search(r"norm|\bln|\bbn", beside))
        ):
            continue  # such as the class weights of a loss
        if int(beside) > int(name) if beside.isdecimal() and name.isdecimal() else not any(rows in o for o in others):
            raise LevelheadError(f"{path}: {place.key} is not the head: {layer} of its {rows} outputs seems to follow, and "
                             "would undo the scaling; adjust the logits instead, or the model with an example input")


def _check_untied(path: Path, places: tuple[Place, ...], spans: Mapping[str, Span]) -> None:
    """No other tensor may have the same bytes of the file, or be a second copy of a whole matrix."""
    ours = {span.key for place in places for span in place.spans}
    for key in ours:
        for other in spans.values():
            if _overlap(spans[key], other) or (other.key not in ours and _is_copy(spans[key], other)):
                raise LevelheadError(
                    f"{path}: {key} is tied to {other.key}, and scaling it would change both; untie them first"
                )


def _overlap(a: Span, b: Span) -> bool:
    same = a.file == b.file and a.key != b.key and b.dtype in SIZES
    return same and a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes


def _is_copy(a: Span, b: Span) -> bool:
    if len(a.shape) < 2 or (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    data = a.bytes()
    return any(data) and data == b.bytes()


def _check_plain(path: Path, layer: str, spans: Mapping[str, Span]) -> None:
    wrapped = layer.removesuffix(".base_layer")
    for pattern, reason in NOT_PLAIN:
        inside = re.compile(re.escape(f"{wrapped}." if wrapped else "") + f"({pattern})")
        beside = next((key for key in spans if inside.fullmatch(key)), None)
        if beside:
            raise LevelheadError(f"{path}: {wrapped} {reason} (the file has {beside})")


def _owner(key: str) -> str:
    """The layer a tensor belongs to: its key less what parametrizations, adapters and quantizers append."""
    for pattern, _ in NOT_PLAIN:
        key = re.sub(rf"\.({pattern})$", "", key)
    return key.removesuffix(".weight").removesuffix(".bias")


def _bare(layer: str) -> str:
    return WRAPPER.sub("", layer, count=1)


def _several(path: Path, found: list[str], layers: Layers) -> str:
    return f"{path}: more than one layer could be the head; name it with --head: {_listed(found, layers)}"


def _listed(found: list[str], layers: Layers, most: int = 8) -> str:
    text = ", ".join(f"{layer} {list(layers[layer].logical)}" for layer in found[:most])
    return (text or "none") + (f", ... ({len(found)} in all)" if len(found) > most else "")
