"""Which of a file's tensors are the classifier's head, by name and shape alone; if several could be, none is taken."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import prod
from pathlib import Path

from ..heads.candidates import HEAD_PAIRS, KNOWN_HEADS, find_by_names, is_logit_scale, list_layers
from ..support.errors import Advice, LevelheadError
from .spans import HEAD_DTYPES, LayerSpans, Span


class NoHead(LevelheadError):
    """No tensor has the shape that was asked for: perhaps the shape is wrong."""


# What is put around a whole model: by DDP, torch.compile, PEFT, Lightning, Flax, or by whoever saved the state dict.
WRAPPER = re.compile(
    r"((module|model|_orig_mod|base_model|net|network|ema|params|state_dict|model_state_dict|model_ema|"
    r"state_dict_ema)\.)*"
)
DEEPEST_NAME = max(name.count(".") for name in KNOWN_HEADS) + 1  # parts that a known name has
NOT_HEADS = re.compile(r"embed|\bwte\b|\bwpe\b|lora_|relative_position|lm_head", re.IGNORECASE)

# What a layer has next to its weight, or instead of it, and why it is then refused.
NOT_PLAIN = (
    (
        r"weight_g|weight_v|weight_orig|weight_u|weight_mask|parametrizations\.weight\..*",
        "is parametrized (weight_norm, pruning or the like); remove the parametrization and save the model again",
    ),
    (
        r"lora_.*|base_layer\..*",
        "is wrapped by LoRA; merge the adapter (merge_and_unload) and save the model again",
    ),
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

# Scores of going from one class to the next, as a CRF has them: [K, K], or more with a start and an end.
TRANSITIONS = re.compile(r"(^|[._])(crf|transitions?|trans_(m|mat|matrix))([._]|$)", re.IGNORECASE)
# What holds the matrix of such a layer: by weight norm, by others, and by those of torch's parametrizations.
COMPUTED = re.compile(r"(?:(.*)\.)?(weight_v|weight_orig|parametrizations\.weight\.original1?)")


def find_layers(
    path: Path, spans: Mapping[str, Span], *, named: str | None = None, classes: int | None = None
) -> tuple[LayerSpans, ...]:
    """Find the layers of the head: those named, those of well-known names, or the only matrix with a row per class."""
    leaves = {re.split("[./]", key)[-1] for key in spans}
    if (
        "kernel" in leaves and "weight" not in leaves
    ):  # of Flax or Keras: kernels [d, K], and a slash between names
        dotted = {key.replace("/", "."): span for key, span in spans.items()}
        spans = {
            key: replace(s, transposed=True) if key.split(".")[-1] == "kernel" else s
            for key, s in dotted.items()
        }
        named = None if named is None else named.replace("/", ".")
    tensors = _Tensors(path, spans)
    if named is not None:
        found = [one.removesuffix(".weight").removesuffix(".kernel") for one in named.split(",")]
        for layer in found:
            _check_plain(tensors, layer)
            if (shape := tensors.shapes.get(layer)) is None:
                near = list_layers(
                    tensors.with_shapes(tensors.candidates(classes) or tensors.candidates())
                )
                raise tensors.error(f"no layer {layer!r}; layers of a head's shape: {near}")
            if len(shape) < 2 or any(n != 1 for n in shape[2:]):
                raise tensors.error(
                    f"expected a weight [K, d] or [K, d, 1, 1], {layer} has {list(shape)}"
                )
        if len(set(found)) < len(found):
            raise LevelheadError(f"expected different layers, got {named}", parameter="head")
    else:
        found = _under_known_names(tensors, classes)
        if not found and classes == 2:  # a head with one logit has two classes
            found = _under_known_names(tensors, 1)
        found = found or _only_candidate(tensors, classes)
        _check_not_hidden(tensors, found)
    layers = tuple(_layer_spans(tensors, layer) for layer in found)
    for layer in layers:
        _check_no_norm_follows(tensors, layer)
        if named is None:
            _check_logits(tensors, layer)
    ours = {span.key: span for layer in layers for span in layer.spans}
    for key, span in ours.items():
        # A second copy of a whole matrix that is not all zeros was the same tensor before it was saved.
        data, different = (
            span.bytes() if len(span.shape) > 1 else b"",
            set(),
        )  # places whose numbers are others
        for other in tensors.spans.values():
            tied, place = overlap(span, other), (other.file, other.offset)
            alike = other.key not in ours and (span.dtype, span.shape) == (other.dtype, other.shape)
            if not tied and alike and place not in different and any(data):
                tied = data == other.bytes()
                different.add(place)
            if tied:
                raise tensors.error(
                    f"{key} is tied to {other.key}, and scaling it would change both; untie them first"
                )
    return layers


def several_heads(layers: Iterable[tuple[str, Sequence[int]]]) -> LevelheadError:
    """Return the error, without the file, for a head that could be any of these layers, each with its shape."""
    reason = f"more than one layer could be the head: {list_layers(layers)}"
    return LevelheadError(reason, advice=Advice("head", None, "to name it"))


@dataclass(frozen=True)
class _Tensors:
    """All tensors of a file by key, and the weights among them by layer."""

    path: Path
    spans: Mapping[str, Span]

    # In memory the last two are settled by an example; a file has only the names.
    pairs = (*HEAD_PAIRS, ("head", "aux_head"), ("head.head", "head.head_dist"))

    @cached_property
    def weights(self) -> dict[str, Span]:
        matrices = {
            key: span
            for key, span in self.spans.items()
            if key.split(".")[-1] == "weight" or span.transposed
        }
        return {key.rpartition(".")[0]: span for key, span in matrices.items()}

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {layer: span.logical for layer, span in self.weights.items()}

    @cached_property
    def names(self) -> dict[str, str]:
        """The layers by their names in the model, without what was put around it."""
        return {layer: WRAPPER.sub("", layer, count=1) for layer in self.weights}

    @cached_property
    def blocks(self) -> set[str]:
        """The layers and all that is around them, by these names."""
        parts = (name.split(".") for name in self.names.values())
        return {
            ".".join(one[:depth])
            for one in parts
            for depth in range(1, min(len(one), DEEPEST_NAME) + 1)
        }

    @cached_property
    def taking(self) -> Counter[tuple[str, int]]:
        """How many layers of a block take so many inputs."""
        return Counter(
            (layer.rpartition(".")[0], shape[1])
            for layer, shape in self.shapes.items()
            if len(shape) > 1
        )

    def candidates(self, classes: int | None = None, *, least: int = 2) -> list[str]:
        """Return the layers of a head's shape with K rows or, if that is not known, at least so many."""
        rows = {layer: shape[0] for layer, shape in _matrices(self.shapes).items()}
        return [layer for layer, n in rows.items() if (n == classes if classes else n >= least)]

    def computed(self, classes: int | None) -> list[str]:
        """Return the layers of a head's shape whose weights are computed from others, as by weight norm."""
        return [
            layer
            for layer, shape in _matrices(self._computed).items()
            if classes in (None, shape[0])
        ]

    @cached_property
    def _computed(self) -> dict[str, tuple[int, ...]]:
        held = {key: match[1] or "" for key in self.spans if (match := COMPUTED.fullmatch(key))}
        return {layer: self.spans[key].logical for key, layer in held.items()}

    def with_shapes(self, layers: Iterable[str]) -> list[tuple[str, tuple[int, ...]]]:
        """Return layers with their shapes, in the order of the file, where heads come late."""
        shapes = self.shapes | self._computed
        order = {_owner(key): i for i, key in enumerate(self.spans)}
        return [
            (layer, shapes[layer]) for layer in sorted({*layers}, key=lambda one: order.get(one, 0))
        ]

    def rows(self, layer: str) -> int:
        return self.shapes[layer][0]

    layers = candidates

    def has(self, block: str, classes: int | None = None) -> bool:
        return block in self.blocks

    fits = has

    def ends(self, block: str, classes: int | None) -> list[str]:
        """Return the layers that may be a block's last: itself, or the last of a Sequential, or all that fit."""
        inside = [
            one
            for one in self.candidates(classes, least=1)
            if f"{self.names[one]}.".startswith(f"{block}.")
        ]
        direct = [layer for layer in inside if self.names[layer] == block]
        places = {
            layer: re.fullmatch(r"\d+", self.names[layer][len(block) + 1 :]) for layer in inside
        }
        numbered = {int(place[0]): layer for layer, place in places.items() if place}
        chain = [self.shapes[numbered[i]] for i in sorted(numbered)]
        if len(numbered) == len(inside) and all(
            one[0] == after[1] for one, after in pairwise(chain)
        ):
            return [numbered[max(numbered)]] if numbered else []
        return direct or inside

    def is_hidden(self, layer: str, found: Sequence[str]) -> bool:
        """Return whether a layer is in the head's own block, or feeds one of its own, which takes K inputs."""
        block, rows = layer.rpartition(".")[0], self.rows(layer)
        feeds = self.taking[block, rows] > (self.shapes[layer][1:2] == (rows,))
        beside = block in {one.rpartition(".")[0] for one in found if "." in one}
        return beside or len(self.shapes[layer]) != 2 or (bool(block) and feeds)

    def several(self, found: Sequence[str], rivals: Sequence[str] = ()) -> LevelheadError:
        reason = several_heads(self.with_shapes([*found, *rivals]))
        return self.error(reason.message, reason.advice)

    def error(self, message: str, advice: Advice | None = None) -> LevelheadError:
        return LevelheadError(f"{self.path}: {message}", advice=advice)

    def doubtful(self, head: LayerSpans, key: str, reason: str, effect: str) -> LevelheadError:
        seems = f"{head.key} looks like the head, but there is a {key}: {reason}"
        return self.error(seems, Advice("head", None, effect))


def _matrices(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the layers of a head's shape, [K, d] or [K, d, 1, 1]; never embeddings."""
    found = {
        layer: shape for layer, shape in shapes.items() if len(shape) > 1 and {*shape[2:]} <= {1}
    }
    return {layer: shape for layer, shape in found.items() if not NOT_HEADS.search(layer)}


def _under_known_names(tensors: _Tensors, classes: int | None) -> list[str]:
    """Return the layers under names that libraries give their heads; one of a single logit if there is no other."""
    for layer in sorted({_owner(key) for key in tensors.spans} - tensors.shapes.keys()):
        if WRAPPER.sub("", layer, count=1) in KNOWN_HEADS:
            _check_plain(tensors, layer)
    return find_by_names(tensors, classes)


def _only_candidate(tensors: _Tensors, classes: int | None) -> list[str]:
    """Return the one layer of a head's shape."""
    single, computed = tensors.candidates(1), tensors.computed(classes)
    found = [*tensors.candidates(classes), *computed]
    if not found and classes == 2 and _is_last(tensors, single):
        found = single
    if len(found) > 1 or (found and single and classes is None):
        raise tensors.several(found, single)
    if found:
        return found
    hint, rows = (
        "is it a backbone alone?",
        "" if classes is None else f" with {classes} rows, one per class",
    )
    if others := [*tensors.candidates(), *tensors.computed(None)]:
        hint = f"layers of a head's shape: {list_layers(tensors.with_shapes([*others, *single]))}"
    elif single:
        listed = list_layers(tensors.with_shapes(single))
        hint = f"{listed} gives one number, as for a regression; a head has a row per class"
        hint += ", or is one logit if there are two counts"
    raise NoHead(f"{tensors.path}: no head found, no weight matrix [K, d]{rows}; {hint}")


def _is_last(tensors: _Tensors, single: Sequence[str]) -> bool:
    """Return whether a single logit is the end of a model: one layer alone, or behind others, one of which feeds it."""
    others = [layer for layer in tensors.candidates(least=1) if layer not in single]
    behind = tensors.with_shapes([*others, *single])[-1:] == tensors.with_shapes(single)
    feeds = any(tensors.rows(other) == tensors.shapes[one][1] for other in others for one in single)
    return len(single) == 1 and behind and (feeds or not others)


def _check_not_hidden(tensors: _Tensors, found: Sequence[str]) -> None:
    """Check that no layer next to the one found takes its outputs: one of a single logit, or `fc2` next to `fc`."""
    for layer in (one for one in found if one in tensors.shapes):
        block, _, name = layer.rpartition(".")
        for other in tensors.candidates(least=1):
            beside, _, title = other.rpartition(".")
            takes = (
                beside == block
                and other != layer
                and tensors.shapes[other][1] == tensors.rows(layer) > 1
            )
            if takes and (
                tensors.rows(other) == 1 or re.fullmatch(re.escape(name) + r"_?\d+", title)
            ):
                raise tensors.several(found, [other, *tensors.candidates(1)])
        for (
            key,
            span,
        ) in tensors.spans.items():  # matrices that are no layer, such as one of many small heads
            beside, _, leaf = key.rpartition(".")
            bare = (
                beside == block
                and leaf not in ("weight", "kernel")
                and len(span.shape) == 2
                and min(span.shape) > 1
            )
            if bare and tensors.rows(layer) in (
                {span.shape[1], prod(span.shape)} - {span.shape[0]}
            ):
                reason = f"{layer} looks like the head, but {key} {list(span.shape)} next to it may take its outputs"
                raise LevelheadError(
                    f"{tensors.path}: {reason}", advice=Advice("head", None, "to name it if not")
                )


def _layer_spans(tensors: _Tensors, layer: str) -> LayerSpans:
    _check_plain(tensors, layer)
    weight, bias = tensors.weights[layer], tensors.spans.get(f"{layer}.bias" if layer else "bias")
    if bias is not None and bias.shape != weight.logical[:1]:
        raise tensors.error(
            f"expected {bias.key} [{weight.logical[0]}], one per class, got {list(bias.shape)}"
        )
    found = LayerSpans(layer, weight, bias)
    for span in (span for span in found.spans if span.dtype not in HEAD_DTYPES):
        advice = (
            "adjust the model before quantizing"
            if "," not in span.dtype
            else "save it as a plain tensor"
        )
        raise tensors.error(
            f"{span.key} holds {span.dtype}; expected F64, F32, F16 or BF16: {advice}"
        )
    return found


def _check_no_norm_follows(tensors: _Tensors, head: LayerSpans) -> None:
    """Check that no norm of K numbers follows the head: it would undo the scaling."""
    rows, columns = head.weight.logical[:2]
    block, _, name = head.key.rpartition(".")
    others = [
        span.logical[:2]
        for span in tensors.spans.values()
        if len(span.logical) > 1 and span is not head.weight
    ]
    for key, span in tensors.spans.items():
        layer, _, leaf = key.rpartition(".")
        inside, _, neighbor = layer.rpartition(".")
        if (
            span.shape != (rows,)
            or rows == columns
            or inside != block
            or layer == head.key
            or not neighbor
        ):
            continue
        paired = tensors.spans.get(f"{layer}.bias")
        like_norm = (paired and paired.shape == span.shape) or re.search(
            r"norm|\bln|\bbn", neighbor
        )
        if leaf != "running_mean" and not (leaf in ("weight", "scale") and like_norm):
            continue  # such as the class weights of a loss
        numbered = neighbor.isdecimal() and name.isdecimal()
        if int(neighbor) > int(name) if numbered else not any(rows in shape for shape in others):
            reason = f"{layer} of its {rows} outputs seems to follow, and would undo the scaling"
            raise tensors.error(
                f"{head.key} is not the head: {reason}; adjust the logits, or the model itself"
            )


def _check_logits(tensors: _Tensors, head: LayerSpans) -> None:
    """Check that the logits are ``W x + b`` alone: nothing around the head scales them, and no CRF decodes them."""
    doubt = "if scaling its rows scales the logits and, for a rule that adds, nothing scales them after it"
    for key, span in tensors.spans.items():
        block, _, leaf = key.rpartition(".")
        around = f"{head.key}.".startswith(f"{block}." if block else "")
        if around and is_logit_scale(leaf, prod(span.shape), head.classes):
            reason = "the model may normalize the weights, as cosine heads do, or scale the logits"
            raise tensors.doubtful(head, key, reason, f"to name it {doubt}")
    sizes = [(n, n) for n in range(head.classes, head.classes + 3)]
    crf = (
        key
        for key, span in tensors.spans.items()
        if span.shape in sizes and TRANSITIONS.search(key)
    )
    if (key := next(crf, None)) is not None and not key.startswith(f"{head.key}."):
        reason = "a CRF seems to follow, which adds its own scores of one class after another to the head's"
        doubt = "to name it, for a rule that adds, if the classes are to be adjusted all the same"
        raise tensors.doubtful(head, key, reason, doubt)


def overlap(a: Span, b: Span) -> bool:
    """Return whether two tensors have bytes of the file in common."""
    size = b.nbytes if b.dtype in HEAD_DTYPES else b.reach
    return (
        a.file == b.file
        and a.key != b.key
        and a.offset < b.offset + size
        and b.offset < a.offset + a.nbytes
    )


def _check_plain(tensors: _Tensors, layer: str) -> None:
    wrapped = layer.removesuffix(".base_layer")
    for pattern, reason in NOT_PLAIN:
        inside = re.compile(re.escape(f"{wrapped}." if wrapped else "") + f"({pattern})")
        if sign := next((key for key in tensors.spans if inside.fullmatch(key)), None):
            raise tensors.error(f"{wrapped} {reason} (the file has {sign})")


def _owner(key: str) -> str:
    """Return the layer a tensor belongs to: its key less what parametrizations, adapters and quantizers append."""
    for pattern, _ in NOT_PLAIN:
        key = re.sub(rf"\.({pattern})$", "", key)
    return key.removesuffix(".weight").removesuffix(".kernel").removesuffix(".bias")
