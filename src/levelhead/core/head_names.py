"""The names that libraries give the heads of their models, and how messages speak of layers that could be one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .errors import Advice, LevelheadError

KNOWN_HEADS = (
    "fc", "classifier", "head", "heads", "score", "classification_head", "out_proj", "logits_proj", "last_linear",
    "linear", "classif", "cls_head", "fc_out", "output", "out", "logits",
)
# Layers that feed one output together, and are scaled together.
HEAD_PAIRS = (
    ("head", "head_dist"),
    ("head", "dist_head"),
    ("heads", "heads_dist"),
    ("cls_classifier", "distillation_classifier"),
    ("classifier", "classifier_distill"),
)

Shapes = Iterable[tuple[str, Sequence[int]]]  # (layer, shape of its weight) in the model's order


def list_layers(layers: Shapes, most: int = 8) -> str:
    """Return layers with their shapes, as a message lists them; of many layers the last ones, as heads come late.

    >>> list_layers([("body", (8, 3)), ("fc", (10, 8))])
    'body [8, 3], fc [10, 8]'
    """
    texts = [f"{layer or '(the model itself)'} {list(shape)}" for layer, shape in layers]
    return ("..., " if len(texts) > most else "") + ", ".join(texts[-most:]) or "none"


def several_heads(layers: Shapes, *, parameter: str, where: str = "") -> LevelheadError:
    """Return the error for a head that could be any of these layers; the parameter is the one that names it."""
    return LevelheadError(f"{where}more than one layer could be the head: {list_layers(layers)}",
                          advice=Advice(parameter, None, "to name it"))
