"""Which layer is the head, by names and shapes alone, in memory and in files; if several could be, none is taken."""

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from ..support.errors import LevelheadError

# A single number of such a name next to a head multiplies its logits; cosine heads have one, and normalize weights.
LOGIT_SCALE = re.compile("(logit_|log_|inv_)?(scale|temperature|temp|tau|sigma|s)|T")
KNOWN_HEADS = (
    "fc", "classifier", "head", "heads", "score", "classification_head", "out_proj", "logits_proj", "last_linear",
    "linear", "classif", "cls_head", "fc_out", "output", "out", "logits", "class_labels_classifier",
    "roi_heads.box_predictor.cls_score",
)  # fmt: skip
# A layer of such a name, or in a block of such a name, leads past others and is added to what those give.
SHORTCUT = re.compile(
    r"(downsample|shortcut|skip|residual)_?(conv|connection|proj|layers?|path|branch)?\d*",
    re.IGNORECASE,
)
# Layers that feed one output together, and are scaled together.
HEAD_PAIRS = (
    ("head", "head_dist"), ("head", "dist_head"), ("heads", "heads_dist"),
    ("cls_classifier", "distillation_classifier"), ("classifier", "classifier_distill"),
)  # fmt: skip
# What is said of a head to which nothing can be added.
TUNE_SCALES = "tune with the rule scales or rescale, which only multiply"
# What is said of layers that an example shows not to be the head, or not to take what is added.
IF_SOFTMAX = "only if nothing but a softmax follows, name the layer and leave out the example"
NOT_ADDED = (
    "{}, what is added to the bias of {} is not added to the model's logits: the model scales or bends them after it; "
    f"{TUNE_SCALES}"
)


class Candidates(Protocol):
    """The linear layers of a model, by name, and what is known of their shapes."""

    pairs: tuple[tuple[str, str], ...]  # names of layers that feed one output together

    def rows(self, layer: str) -> int: ...
    def layers(self, rows: int, /) -> Iterable[str]: ...  # of a head's shape with so many rows
    def has(self, block: str) -> bool: ...  # whether there are linear layers in a block
    def fits(
        self,
        block: str,
        classes: int | None,
        # Whether one may be a head of so many classes.
    ) -> bool: ...
    def ends(
        self,
        block: str,
        classes: int | None,
        # The layers that may be a block's last.
    ) -> list[str]: ...
    def is_hidden(
        self,
        layer: str,
        found: Sequence[str],
        # Whether its rows are as many by chance.
    ) -> bool: ...
    def several(
        self,
        found: Sequence[str],
        rivals: Sequence[str] = (),
        # For any that could be.
    ) -> LevelheadError: ...


def find_by_names(model: Candidates, classes: int | None) -> list[str]:
    """Return the layers under names that libraries give their heads: none, one, or a pair that feeds one output."""
    for pair in model.pairs:
        if all(model.has(block) for block in pair):
            ends = [model.ends(block, classes) for block in pair]
            if all(len(end) == 1 for end in ends):
                return check_no_rivals(model, [end[0] for end in ends])
    fitting = (block for block in KNOWN_HEADS if model.fits(block, classes))
    found = list(dict.fromkeys(layer for block in fitting for layer in model.ends(block, classes)))
    found = [layer for layer in found if model.rows(layer) > 1] or found
    if len(found) > 1:
        raise model.several(found)
    return check_no_rivals(model, found)


def check_no_rivals(model: Candidates, found: list[str]) -> list[str]:
    """Return the same layers, if no other with as many rows could feed the output next to them."""
    sizes = dict.fromkeys(model.rows(layer) for layer in found)
    others = (layer for rows in sizes for layer in model.layers(rows) if layer not in found)
    if rivals := [layer for layer in others if not model.is_hidden(layer, found)]:
        raise model.several(found, rivals)
    return found


def is_shortcut(layer: str) -> bool:
    """Return whether a layer leads past others by its name, such as `layer4.0.downsample.0`: it is never a head."""
    names = [name for name in layer.split(".") if not name.isdecimal()]
    return any(SHORTCUT.fullmatch(name) for name in names[-2:])


def is_logit_scale(name: str, size: int, rows: int | None) -> bool:
    """Return whether a tensor of so many numbers next to a head seems to scale its logits."""
    return size in (1, rows) and LOGIT_SCALE.fullmatch(name) is not None


def list_layers(layers: Iterable[tuple[str, Sequence[int]]], most: int = 8) -> str:
    """Return layers with the shapes of their weights, for a message; of many the last ones, since heads come late."""
    texts = [f"{layer or '(the model itself)'} {list(shape)}" for layer, shape in layers]
    return ("..., " if len(texts) > most else "") + ", ".join(texts[-most:]) or "none"
