"""Which layer is the head, by names and shapes alone, in memory and in files.

`find_by_names` looks under the names that libraries give their heads, and asks of a model only what
`Candidates` has: modules (torch_find.py) and the tensors of files answer alike. A wrong guess would
bend another layer, so that where several layers could be the head, none is taken.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

from ..support.errors import LevelheadError

# How a caller names the head of a model in memory: the path of a layer, the layer itself, or a list
# of them if several feed one output; None if it is to be found.
LayerChoice: TypeAlias = object
# An input that a model in memory can be run on: a tensor, a tuple of arguments, a dict of keyword
# arguments; None if there is none.
Example: TypeAlias = object

# A number of such a name next to a head, or one for each class, multiplies its logits; cosine heads
# have one, and normalize weights.
LOGIT_SCALE = re.compile(
    "(logits?_|log_|inv_|class_|output_)?(scale|temperature|temp|tau|sigma|s)s?|T"
)
# torchvision has fc, classifier, heads and, in detectors, cls_score; timm fc, head and classifier;
# transformers classifier, score (of decoders), class_labels_classifier (of DETR) and out_proj,
# inside of others.
KNOWN_HEADS = (
    "fc", "classifier", "head", "heads", "score", "classification_head", "out_proj", "logits_proj", "last_linear",
    "linear", "classif", "cls_head", "fc_out", "output", "out", "logits", "class_labels_classifier",
    "roi_heads.box_predictor.cls_score",
)  # fmt: skip
# A layer of such a name, or in a block of such a name, leads past others, to be added to them.
SHORTCUT = re.compile(
    r"(.*_)?(downsample|short_?cut|skip|residual)_?(conv|connection|proj|layers?|path|branch)?\d*",
    re.IGNORECASE,
)
# Layers that feed one output together, and are scaled together: DeiT and LeViT, distilled, give the
# mean of both.
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
    """The linear layers of a model, by name, and what is known of their shapes.

    Names are paths with dots, "encoder.head.fc". `_Modules` (torch_find.py) answers for a module,
    and the readers of state dicts and safetensors files for tensors; what one of them cannot know,
    such as which layer runs when, it answers so that nothing is concluded from it.
    """

    def pairs(self) -> Iterable[tuple[str, str]]:
        """Return the names of layers that feed one output together, where both are there."""
        ...

    def rows(self, layer: str) -> int:
        """Return how many outputs a layer has."""
        ...

    def layers(self, rows: int, /) -> Iterable[str]:
        """Return the layers of a head's shape that have so many rows."""
        ...

    def has(self, block: str) -> bool:
        """Return whether there are linear layers in a block."""
        ...

    def fits(self, block: str, classes: int | None) -> bool:
        """Return whether a layer of the block may be a head of so many classes.

        Args:
            block: a name of `KNOWN_HEADS`; it need not be there.
            classes: K, or None if that is not known.
        """
        ...

    def ends(self, block: str, classes: int | None) -> list[str]:
        """Return the layers that may be a block's last.

        A `classifier` is a linear layer in one library and a small network in another.
        """
        ...

    def is_hidden(self, layer: str, head: Sequence[str], /) -> bool:
        """Return whether a layer with as many rows as the head is known not to feed the output."""
        ...

    def several(self, head: Sequence[str], rivals: Sequence[str] = (), /) -> LevelheadError:
        """Return the error for several layers that could be the head, or for rivals of one."""
        ...


def find_by_names(model: Candidates, classes: int | None) -> list[str]:
    """Return the layers under names that libraries give their heads.

    There may be none, one, or a pair that feeds one output. Pairs come first, since one layer of a
    pair has a known name by itself, and half of a head would be adjusted.

    Args:
        model: its linear layers.
        classes: K, where it is known.

    Returns:
        Names of layers; an empty list where no block has a known name, and another way must be
        gone.

    Raises:
        LevelheadError: several layers could be the head.
    """
    for pair in model.pairs():
        if all(model.has(block) for block in pair):
            ends = [model.ends(block, classes) for block in pair]
            if all(len(end) == 1 for end in ends):
                return check_no_rivals(model, [end[0] for end in ends])

    # Every known name, and not the first that is there: `classifier` and `score` may both be.
    named: list[str] = []
    for block in KNOWN_HEADS:
        if model.fits(block, classes):
            named += model.ends(block, classes)
    head = list(dict.fromkeys(named))
    # A layer of one output beside one of several: a regression or a score, not the classes.
    head = [layer for layer in head if model.rows(layer) > 1] or head
    if len(head) > 1:
        raise model.several(head)
    return check_no_rivals(model, head)


def check_no_rivals(model: Candidates, head: list[str]) -> list[str]:
    """Return the same layers, if no other with as many rows could feed the output next to them.

    A second head of K outputs, as for distillation or deep supervision, would stay as it is, and an
    output that is the mean of both would be adjusted by half.
    """
    rivals = []
    for rows in dict.fromkeys(model.rows(layer) for layer in head):
        for layer in model.layers(rows):
            if layer not in head and not model.is_hidden(layer, head):
                rivals.append(layer)
    if rivals:
        raise model.several(head, rivals)
    return head


def is_shortcut(layer: str) -> bool:
    """Return whether a layer leads past others, by its name: it is never a head.

    Of a 1x1 convolution with K outputs in a residual block nothing else says so. The last two names
    are looked at, without numbers, as blocks are often `downsample.0` and `downsample.1`.

    >>> is_shortcut("layer4.0.downsample.0"), is_shortcut("fc")
    (True, False)
    """
    names = [name for name in layer.split(".") if not name.isdecimal()]
    return any(SHORTCUT.fullmatch(name) for name in names[-2:])


def is_logit_scale(name: str, size: int, rows: int | None) -> bool:
    """Return whether a tensor of so many numbers next to a head seems to scale its logits.

    Args:
        name: of the tensor, without that of its block.
        size: how many numbers it has.
        rows: K, as it may have a scale for each class; None if that is not known.

    >>> is_logit_scale("logit_scale", 1, 10), is_logit_scale("weight", 1, 10)
    (True, False)
    """
    return size in (1, rows) and LOGIT_SCALE.fullmatch(name) is not None


def list_layers(layers: Iterable[tuple[str, Sequence[int]]], most: int = 8) -> str:
    """Return layers with the shapes of their weights, for a message.

    Of many, the last ones are listed, since heads come late.

    >>> list_layers([("body", (64, 8)), ("fc", (10, 64))])
    'body [64, 8], fc [10, 64]'
    """
    texts = [f"{layer or '(the model itself)'} {list(shape)}" for layer, shape in layers]
    if not texts:
        return "none"
    if len(texts) > most:
        texts = ["...", *texts[-most:]]
    return ", ".join(texts)
