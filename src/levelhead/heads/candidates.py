"""The names that libraries give the heads of their models, and how messages list layers that could be one."""

import re
from collections.abc import Iterable, Sequence

# A single number of such a name next to a head multiplies its logits; cosine heads have one, and normalize weights.
LOGIT_SCALE = re.compile("(logit_|log_|inv_)?(scale|temperature|temp|tau|sigma|s)|T")
KNOWN_HEADS = (
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
    "class_labels_classifier",
    "roi_heads.box_predictor.cls_score",
)
# Layers that feed one output together, and are scaled together.
HEAD_PAIRS = (
    ("head", "head_dist"),
    ("head", "dist_head"),
    ("heads", "heads_dist"),
    ("cls_classifier", "distillation_classifier"),
    ("classifier", "classifier_distill"),
)


def list_layers(layers: Iterable[tuple[str, Sequence[int]]], most: int = 8) -> str:
    """Return layers with the shapes of their weights, for a message; of many the last ones, since heads come late."""
    texts = [f"{layer or '(the model itself)'} {list(shape)}" for layer, shape in layers]
    return ("..., " if len(texts) > most else "") + ", ".join(texts[-most:]) or "none"
