"""The tensors of a file by key, and its layers by name and shape: what a head is found among.

A file without a graph has only names and shapes to go by. `Tensors` holds both and answers what
find.py and find_checks.py ask of them; it is also what `find_by_names` (heads/candidates.py) takes,
which knows the names that libraries give their heads.

    spans: key -> Span, such as `module.fc.weight` -> [10, 512] at byte 4096
    weights, shapes: layer -> the span of its weight, and that as [K, d]: `module.fc` -> (10, 512)
    names: layer -> its name in the model, without wrappers: `module.fc` -> `fc`
    candidates: the layers of a head's shape

The patterns above the class are what was met in files: wrappers around a model, matrices that are
no layers, and tensors by which a layer is known not to be plain.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from ..heads.candidates import HEAD_PAIRS, KNOWN_HEADS, is_shortcut, list_layers
from ..support.errors import Advice, LevelheadError
from .spans import LayerSpans, Span

# Where training scripts keep a state dict among other things. States of optimizers, which have the
# same shapes, and of critics are not among them.
STATE_DICT = (
    r"model|model_state|model_ema|state_dict_ema|ema|net|network|module|params|weights|"
    r"(?!\w*(optim|sched|scaler|loss|crit))\w*state_dict"
)
# What is put around a whole model: by DDP, torch.compile, PEFT, Lightning, Flax, or by whoever
# saved the state dict.
WRAPPER = re.compile(rf"(({STATE_DICT}|_orig_mod|base_model)\.)*")
DEEPEST_NAME = max(name.count(".") for name in KNOWN_HEADS) + 1  # parts that a known name has
# Matrices that are looked up, or added to features, and take nothing: `tok_embeddings`, `pos_emb`,
# `wte`.
EMBEDDING = r"embed|(?<![a-z])emb(?![a-z])|\bwte\b|\bwpe\b|relative_position"
NOT_HEADS = re.compile(rf"{EMBEDDING}|lora_|lm_head", re.IGNORECASE)

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

# What a layer's own matrix is called: also of recurrent layers and of attention.
WEIGHTS = re.compile(r"weight|weight_[ih]h.*|.*_proj_weight")
# What holds the matrix of such a layer: by weight norm, by others, and by those of torch's
# parametrizations.
COMPUTED = re.compile(r"(?:(.*)\.)?(weight_v|weight_orig|parametrizations\.weight\.original1?)")
# What holds the integers of a quantized layer, as GPTQ and AWQ have them.
QUANTIZED = re.compile(r"(?:(.*)\.)?qweight")


def several_heads(layers: Iterable[tuple[str, Sequence[int]]]) -> LevelheadError:
    """Return the error, without the file, for a head that could be any of these layers.

    Args:
        layers: (name, shape) of each, for the message, which says how to name one.
    """
    reason = f"more than one layer could be the head: {list_layers(layers)}"
    return LevelheadError(reason, advice=Advice("head", None, "to name it"))


@dataclass(frozen=True)
class Tensors:
    """All tensors of a file by key, and the weights among them by layer.

    Args:
        path: the file.
        spans: its tensors by key, in the order of the file; keys have dots between names.
        ordered: whether they come in the order in which the model has its layers. State dicts do,
            as torch registers parameters; other formats have an order of their own.
    """

    path: Path
    spans: Mapping[str, Span]
    ordered: bool = False

    @cached_property
    def weights(self) -> dict[str, Span]:
        """The weight of each layer, a `weight` [K, d] or a `kernel` [d, K], by its name."""
        weights = {}
        for key, span in self.spans.items():
            layer, _, leaf = key.rpartition(".")
            if leaf == "weight" or span.transposed:
                weights[layer] = span
        return weights

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each layer's weight, [K, d] whichever way round the file has it."""
        return {layer: span.logical for layer, span in self.weights.items()}

    @cached_property
    def names(self) -> dict[str, str]:
        """The layers by their names in the model, without what was put around it.

        `model.module.fc` is `fc`, where DDP and a training script each put a name before it.
        """
        return {layer: WRAPPER.sub("", layer, count=1) for layer in self.weights}

    @cached_property
    def blocks(self) -> set[str]:
        """The layers and all that is around them, by these names.

        No deeper than a known head's name may be: of `roi_heads.box_predictor.cls_score.0` these
        are `roi_heads`, `roi_heads.box_predictor` and `roi_heads.box_predictor.cls_score`.
        """
        blocks = set()
        for name in self.names.values():
            parts = name.split(".")
            for depth in range(1, min(len(parts), DEEPEST_NAME) + 1):
                blocks.add(".".join(parts[:depth]))
        return blocks

    @cached_property
    def taking(self) -> Counter[tuple[str, int]]:
        """How many layers of a block take so many inputs: {(block, d): layers}.

        Counted once, as a file may have thousands of layers, and `is_hidden` asks of each.
        """
        taking: Counter[tuple[str, int]] = Counter()
        for layer, shape in (self.shapes | self._computed).items():
            if len(shape) > 1:
                taking[layer.rpartition(".")[0], shape[1]] += 1
        return taking

    @cached_property
    def last_taking(self) -> dict[tuple[str, int], int]:
        """The turn of the last layer of a block that takes so many inputs, if turns are known."""
        last: dict[tuple[str, int], int] = {}
        for layer, shape in (self.shapes | self._computed).items():
            turn = self._turn(layer)
            if len(shape) > 1 and turn is not None:
                key = (layer.rpartition(".")[0], shape[1])
                last[key] = max(turn, last.get(key, turn))
        return last

    def _turn(self, layer: str) -> int | None:
        """Return a number that is larger for a layer that is run later in its block; None if unknown.

        It is the layer's place in a file that has an order, or its number in a Sequential.
        """
        if self.ordered:
            return self._places[layer]
        name = layer.rpartition(".")[2]
        return int(name) if re.fullmatch(r"[0-9]{1,9}", name) else None

    @cached_property
    def _places(self) -> dict[str, int]:
        """Where each layer first appears in the file."""
        places: dict[str, int] = {}
        for place, key in enumerate(self.spans):
            match = COMPUTED.fullmatch(key)
            layer = key.rpartition(".")[0] if match is None else match[1] or ""
            places.setdefault(layer, place)
        return places

    def candidates(self, classes: int | None = None, *, least: int = 2) -> list[str]:
        """Return the layers of a head's shape, in the order of the file.

        Args:
            classes: K: only layers with so many rows; None if that is not known.
            least: without `classes`, how many rows they have at least.
        """
        candidates = []
        for layer, shape in matrix_shapes(self.shapes).items():
            rows = shape[0]
            if rows == classes or (not classes and rows >= least):
                candidates.append(layer)
        return candidates

    def wide_convolutions(self, classes: int | None) -> list[str]:
        """Return the convolutions over more than one place, such as 3x3, that have K outputs.

        Args:
            classes: K, or None for any number of outputs.
        """
        return [
            layer
            for layer, shape in self.shapes.items()
            if {*shape[2:]} - {1} and classes in (None, shape[0]) and not is_shortcut(layer)
        ]

    def computed(self, classes: int | None) -> list[str]:
        """Return layers of a head's shape whose weights are computed, as by weight norm, or quantized.

        They cannot be changed as they are, but must not be passed over: one of them may be the
        head, and another layer would be taken in its place.
        """
        return [
            layer
            for layer, shape in matrix_shapes(self._computed | self._quantized).items()
            if classes in (None, shape[0])
        ]

    @cached_property
    def _computed(self) -> dict[str, tuple[int, ...]]:
        """The shapes of layers whose weights are computed from others."""
        shapes = {}
        for key, span in self.spans.items():
            match = COMPUTED.fullmatch(key)
            if match is not None:
                shapes[match[1] or ""] = span.logical
        return shapes

    @cached_property
    def _quantized(self) -> dict[str, tuple[int, ...]]:
        """The shapes of quantized layers, [K, ...], as far as they can be told.

        Integers may be packed along either axis. Scales [groups, K] then tell K.
        """
        shapes = {}
        for key, span in self.spans.items():
            match = QUANTIZED.fullmatch(key)
            if match is None:
                continue
            shape = span.shape
            scales = self.spans.get(f"{key.removesuffix('qweight')}scales")
            if scales is not None and len(scales.shape) == 2 and scales.shape[1] > 1:
                shape = (scales.shape[1], *shape[:1])
            shapes[match[1] or ""] = shape
        return shapes

    @cached_property
    def _known_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all layers that may be a head: plain, computed and quantized ones."""
        return self.shapes | self._computed | self._quantized

    @cached_property
    def all_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all layers in the order of the file, recurrent and computed ones too.

        More than `shapes`, to tell what may follow a head: a layer that could not be one may take
        its outputs.
        """
        shapes: dict[str, tuple[int, ...]] = {}
        for key, span in self.spans.items():
            if len(span.shape) < 2:
                continue
            block, _, leaf = key.rpartition(".")
            if COMPUTED.fullmatch(key):
                shapes[owner_of(key)] = span.logical
            elif WEIGHTS.fullmatch(leaf) or span.transposed:
                shapes[block] = span.logical
        return shapes

    def with_shapes(self, layers: Iterable[str]) -> list[tuple[str, tuple[int, ...]]]:
        """Return layers with their shapes, in the order of the file, where heads come late.

        Args:
            layers: plain, computed or quantized ones; each is there once in the answer.
        """
        order = {owner_of(key): i for i, key in enumerate(self.spans)}
        ordered = sorted({*layers}, key=lambda layer: order.get(layer, 0))
        return [(layer, self._known_shapes[layer]) for layer in ordered]

    # What `find_by_names` asks. A file cannot tell a block that fits from one that is there.

    def pairs(self) -> Sequence[tuple[str, str]]:
        """Return the names of layers that feed one output together.

        The last two are settled by an example in memory; a file has only the names.
        """
        return (*HEAD_PAIRS, ("head", "aux_head"), ("head.head", "head.head_dist"))

    def rows(self, layer: str) -> int:
        """Return how many rows a layer has: K."""
        return self.shapes[layer][0]

    def layers(self, rows: int) -> list[str]:
        """Return the layers of a head's shape with so many rows, also those that cannot be changed."""
        return [*self.candidates(rows), *self.computed(rows)]

    def has(self, block: str, classes: int | None = None) -> bool:
        """Return whether there is a layer, or something with layers in it, of this name.

        Args:
            block: a name in the model, without wrappers.
            classes: is not looked at: a file cannot tell whether a block fits.
        """
        return block in self.blocks

    fits = has

    def ends(self, block: str, classes: int | None) -> list[str]:
        """Return the layers that may be a block's last.

        That is the block itself, the last of a Sequential, or all in it that fit.

        Args:
            block: a name in the model, such as `classifier`.
            classes: K, or None; only layers with so many rows count.
        """
        inside = [
            layer
            for layer in self.candidates(classes, least=1)
            if f"{self.names[layer]}.".startswith(f"{block}.")
        ]
        # A Sequential numbers its layers. They are a chain if each takes what the one before it
        # gives.
        numbered: dict[int, str] = {}
        for layer in inside:
            number = self.names[layer][len(block) + 1 :]
            if re.fullmatch(r"\d+", number):
                numbered[int(number)] = layer
        shapes = [self.shapes[numbered[i]] for i in sorted(numbered)]
        is_chain = all(before[0] == after[1] for before, after in pairwise(shapes))
        if len(numbered) == len(inside) and is_chain:
            if numbered:
                return [numbered[max(numbered)]]
            return []
        direct = [layer for layer in inside if self.names[layer] == block]
        return direct or inside

    def is_hidden(self, layer: str, found: Sequence[str]) -> bool:
        """Return whether a layer is in the head's own block, or feeds another of its block.

        Such a layer has as many rows as the head and is none: hidden layers are as wide as they
        please. So it is no rival of the head. A wrapper around the whole model is no such block.

        Args:
            layer: one that could be a head, too.
            found: the layers of the head.
        """
        shape = self._known_shapes[layer]
        if len(shape) != 2:
            return True
        if "." not in WRAPPER.sub("", layer, count=1):
            return False
        block = layer.rpartition(".")[0]
        return block in {other.rpartition(".")[0] for other in found} or self._feeds(layer, shape)

    def _feeds(self, layer: str, shape: tuple[int, ...]) -> bool:
        """Return whether another layer of its block takes as many inputs as a layer has rows.

        It must come later, where that is known: `refine.0` does not take what `refine.2` gives.
        """
        block = layer.rpartition(".")[0]
        rows = shape[0]
        turn = self._turn(layer)
        if turn is not None:
            return self.last_taking.get((block, rows), turn) > turn
        itself = int(shape[1] == rows)  # a square layer takes K inputs itself
        return self.taking[block, rows] > itself

    def several(self, found: Sequence[str], rivals: Sequence[str] = ()) -> LevelheadError:
        """Return the error for a head that could be any of these layers.

        Args:
            found: what looks like the head.
            rivals: what else could be it.
        """
        reason = several_heads(self.with_shapes([*found, *rivals]))
        return self.error(reason.message, reason.advice)

    def error(self, message: str, advice: Advice | None = None) -> LevelheadError:
        """Return an error about this file."""
        return LevelheadError(f"{self.path}: {message}", advice=advice)

    def doubtful(self, head: LayerSpans, key: str, reason: str, effect: str) -> LevelheadError:
        """Return the error for a head that a tensor speaks against, unless it is named.

        Args:
            head: what looks like it.
            key: the tensor that speaks against it.
            reason: why it does.
            effect: when to name the head all the same.
        """
        seems = f"{head.key} looks like the head, but there is a {key}: {reason}"
        return self.error(seems, Advice("head", None, effect))


def matrix_shapes(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the layers of a head's shape, [K, d] or [K, d, 1, 1]; never embeddings or shortcuts.

    >>> matrix_shapes({"fc": (10, 64), "conv1": (64, 3, 7, 7), "embed": (1000, 64), "bn": (64,)})
    {'fc': (10, 64)}
    """
    matrices = {}
    for layer, shape in shapes.items():
        is_matrix = len(shape) > 1 and all(n == 1 for n in shape[2:])
        if is_matrix and not NOT_HEADS.search(layer) and not is_shortcut(layer):
            matrices[layer] = shape
    return matrices


def owner_of(key: str) -> str:
    """Return the layer a tensor belongs to: its key less what wrappers of a weight append.

    These are parametrizations, adapters and quantizers, as NOT_PLAIN lists them.

    >>> owner_of("head.fc.weight"), owner_of("head.fc.weight_g"), owner_of("head.fc.lora_A.weight")
    ('head.fc', 'head.fc', 'head.fc')
    """
    for pattern, _ in NOT_PLAIN:
        key = re.sub(rf"\.({pattern})$", "", key)
    return key.removesuffix(".weight").removesuffix(".kernel").removesuffix(".bias")
