"""What speaks against a layer that was found as the head of a file.

Each check looks at what is next to the layer, after it or above it, and raises with what it saw and
what to do. A file without a graph has only names and shapes, so that they err on the side of
asking: a wrong head would be scaled without anybody noticing.

Real models ask for them: ERFNet has an output of its encoder that is not run, graph convolutions a
bias of their block, SqueezeNet a ReLU behind its classifier, taggers a CRF behind their head.

    always: check_layer_is_plain, check_no_norm_follows, check_block_adds_nothing, check_not_tied
    unless the caller names the layer: check_not_hidden, check_logits_are_plain
    for a layer under a name that nobody knows: check_not_bare, check_nothing_follows
"""

import re
from collections.abc import Sequence
from math import prod

from ..heads.candidates import is_logit_scale, list_layers
from ..support.errors import Advice
from .spans import HEAD_DTYPES, LayerSpans, Span
from .tensors import EMBEDDING, NOT_PLAIN, WRAPPER, Tensors

NOT_WEIGHTS = re.compile(EMBEDDING, re.IGNORECASE)

# Scores of going from one class to the next, as a CRF has them: [K, K], or more with a start and an
# end.
TRANSITIONS = re.compile(r"(^|[._])(crf|transitions?|trans_(m|mat|matrix))([._]|$)", re.IGNORECASE)


def check_layer_is_plain(tensors: Tensors, layer: str) -> None:
    """Check that a layer's weight is a plain tensor.

    It is not if it is parametrized, wrapped by LoRA, quantized or normalized: what the file has
    under the layer's name is then not what the layer multiplies by.

    Raises:
        LevelheadError: it is not; the message names the tensor that shows it, and what to do.
    """
    # PEFT keeps the layer itself inside its wrapper, as `base_layer`; its adapters are next to
    # that.
    wrapped = layer.removesuffix(".base_layer")
    for pattern, reason in NOT_PLAIN:
        inside = re.compile(re.escape(f"{wrapped}." if wrapped else "") + f"({pattern})")
        signs = [key for key in tensors.spans if inside.fullmatch(key)]
        if signs:
            raise tensors.error(f"{wrapped} {reason} (the file has {signs[0]})")


def check_not_hidden(tensors: Tensors, found: Sequence[str]) -> None:
    """Check that nothing next to the layers that were found takes their outputs.

    A hidden layer may be called `fc` and have as many rows as there are classes.

    Args:
        tensors: of the file.
        found: the layers that look like the head; computed ones, whose shape is not known here, are
            passed over.
    """
    for layer in found:
        if layer in tensors.shapes:
            _check_no_layer_takes(tensors, layer, found)
            _check_no_matrix_takes(tensors, layer)


def _check_no_layer_takes(tensors: Tensors, layer: str, found: Sequence[str]) -> None:
    """Check that no layer of the same block takes the K outputs: a single logit, or `fc2` by `fc`.

    Args:
        tensors: of the file.
        layer: one that looks like the head.
        found: all that do, for the message.
    """
    block, _, name = layer.rpartition(".")
    numbered = re.compile(re.escape(name) + r"_?\d+")
    for other in tensors.candidates(least=1):
        beside, _, title = other.rpartition(".")
        if beside != block or other == layer:
            continue
        # Any layer may take K inputs by chance. A single logit behind them, or the next number, is
        # none.
        takes = tensors.shapes[other][1] == tensors.rows(layer) > 1
        if takes and (tensors.rows(other) == 1 or numbered.fullmatch(title)):
            raise tensors.several(found, [other, *tensors.candidates(1)])


def _check_no_matrix_takes(tensors: Tensors, layer: str) -> None:
    """Check that no matrix of the same block that is no layer takes K inputs.

    Such as one of many small heads, kept as plain parameters: `self.w2 = nn.Parameter(...)`.
    """
    block = layer.rpartition(".")[0]
    for key, span in tensors.spans.items():
        beside, _, leaf = key.rpartition(".")
        is_layer = leaf in ("weight", "kernel")
        is_matrix = len(span.shape) == 2 and min(span.shape) > 1
        if beside != block or is_layer or not is_matrix:
            continue
        # K columns, or K numbers in all; K rows may be another thing of each class.
        rows, columns = span.shape
        if tensors.rows(layer) in (columns, rows * columns) and tensors.rows(layer) != rows:
            seems = f"{layer} looks like the head"
            reason = f"{seems}, but {key} {list(span.shape)} next to it may take its outputs"
            raise tensors.error(reason, Advice("head", None, "to name it if not"))


def check_no_norm_follows(tensors: Tensors, head: LayerSpans) -> None:
    """Check that no norm of K numbers follows the head: it would undo the scaling.

    A batch norm divides each output by its spread, and a layer norm all of them by theirs.
    """
    rows, columns = head.weight.logical[:2]
    if rows == columns:  # a norm of K numbers may as well be before it
        return
    block, _, name = head.key.rpartition(".")
    blocks = {block}
    # Keras puts layers whose attributes sort behind the word into a group `layers` of their model.
    if block in ("", "layers") and head.weight.key.endswith("kernel"):
        blocks = {"", "layers"}
    for key, span in tensors.spans.items():
        layer, _, _ = key.rpartition(".")
        inside, _, neighbor = layer.rpartition(".")
        if span.shape != (rows,) or inside not in blocks or layer == head.key or not neighbor:
            continue
        if not _is_of_norm(tensors, key):
            continue  # such as the class weights of a loss
        # Numbers say which comes first. Otherwise it follows if no other layer has K inputs or
        # outputs.
        if neighbor.isdecimal() and name.isdecimal():
            follows = int(neighbor) > int(name)
        else:
            follows = not _is_size_of_another(tensors, head, rows)
        if follows:
            reason = f"{layer} of its {rows} outputs seems to follow, and would undo the scaling"
            raise tensors.error(
                f"{head.key} is not the head: {reason}; adjust the logits, or the model itself"
            )


def _is_of_norm(tensors: Tensors, key: str) -> bool:
    """Return whether a tensor is the running mean or the scale of a norm.

    Its scale [K] looks like any vector of K numbers, such as the class weights of a loss. A norm
    has a bias of the same shape, or is called one.
    """
    layer, _, leaf = key.rpartition(".")
    if leaf == "running_mean":
        return True
    if leaf not in ("weight", "scale"):
        return False
    # Its bias has the same shape, unlike that of a linear layer; one without a bias is known by its
    # name.
    bias = tensors.spans.get(f"{layer}.bias")
    if bias is not None and bias.shape == tensors.spans[key].shape:
        return True
    return re.search(r"norm|\bln|\bbn", layer.rpartition(".")[2]) is not None


def _is_size_of_another(tensors: Tensors, head: LayerSpans, size: int) -> bool:
    """Return whether a matrix other than the head's has so many rows or columns.

    Then a norm of that size may belong to that one, and nothing is said against the head.
    """
    for span in tensors.spans.values():
        is_matrix = len(span.logical) > 1 and span is not head.weight
        if is_matrix and size in span.logical[:2]:
            return True
    return False


def check_logits_are_plain(tensors: Tensors, head: LayerSpans) -> None:
    """Check that the logits are ``W x + b`` alone.

    A single number called `logit_scale` or the like around the head multiplies them, and is a sign
    of cosine heads, which normalize the rows and so undo any scaling. A CRF adds scores of its own
    before the classes are compared.

    Args:
        tensors: of the file.
        head: the layer that was found, not named: whoever names it has been told.
    """
    doubt = "if scaling its rows scales the logits and, for a rule that adds, nothing scales them after it"
    for key, span in tensors.spans.items():
        block, _, leaf = key.rpartition(".")
        around = f"{head.key}.".startswith(f"{block}." if block else "")
        if around and is_logit_scale(leaf, prod(span.shape), head.classes):
            reason = "the model may normalize the weights, as cosine heads do, or scale the logits"
            raise tensors.doubtful(head, key, reason, f"to name it {doubt}")
    # With a start, or a start and an end, its matrix has a row and a column more for each.
    sizes = [(n, n) for n in range(head.classes, head.classes + 3)]
    transitions = [
        key
        for key, span in tensors.spans.items()
        if span.shape in sizes and TRANSITIONS.search(key)
    ]
    if transitions and not transitions[0].startswith(f"{head.key}."):
        crf = "a CRF seems to follow"
        reason = f"{crf}, which adds its own scores of one class after another to the head's"
        doubt = "to name it, for a rule that adds, if the classes are to be adjusted all the same"
        raise tensors.doubtful(head, transitions[0], reason, doubt)


def check_not_tied(tensors: Tensors, layers: Sequence[LayerSpans]) -> None:
    """Check that no tensor of the head is also another one: scaling it would change both.

    Two keys may lead to the same bytes. Or a format without shared tensors has two copies of what
    is one in the model: whichever is loaded last counts, and after an adjustment they differ.

    Args:
        tensors: of the file.
        layers: of the head.
    """
    head = {span.key: span for layer in layers for span in layer.spans}
    for key, span in head.items():
        # A second copy of a whole matrix that is not all zeros was the same tensor before it was
        # saved.
        matrix = b""
        if len(span.shape) > 1:
            matrix = span.bytes()
        different = set()  # places whose numbers are others: several tensors may lie there
        for other in tensors.spans.values():
            tied = overlap(span, other)
            place = (other.file, other.offset)
            alike = other.key not in head and (span.dtype, span.shape) == (other.dtype, other.shape)
            if not tied and alike and place not in different and any(matrix):
                tied = matrix == other.bytes()
                different.add(place)
            if tied:
                reason = f"{key} is tied to {other.key}, and scaling it would change both"
                raise tensors.error(f"{reason}; untie them first")


def check_nothing_follows(tensors: Tensors, layer: str) -> None:
    """Check that a layer under a name that nobody knows is the last one.

    A file without a graph does not say which layers are run, and in which order. Where its tensors
    come in the order of the model's layers, no weights may come after the head's. Elsewhere no
    other layer may be able to follow it.

    Args:
        tensors: of the file.
        layer: the only one of a head's shape.
    """
    shapes = tensors.all_shapes
    own = shapes[layer]
    if own[0] == 1:  # a single logit is taken only where it is the last layer
        return
    # In order, whatever comes later could follow; else whatever takes K inputs.
    if tensors.ordered:
        layers = list(shapes)
        others = layers[layers.index(layer) + 1 :]
    else:
        others = [
            other for other, shape in shapes.items() if other != layer and _may_follow(own, shape)
        ]
    others = [other for other in others if not NOT_WEIGHTS.search(other)]
    if others:
        listed = list_layers([(layer, own)])
        last = list_layers([(others[-1], shapes[others[-1]])])
        reason = f"{listed} looks like the head, but {last} may come after it"
        raise tensors.error(reason, Advice("head", None, "to name it if not"))


def _may_follow(head: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether a layer may take the outputs of a head, or give the classes in its place.

    Args:
        head, other: shapes, [K, d] or of a convolution [K, d, ...].
    """
    classes = head[0]
    if len(head) == 2:  # [N, K] is taken by linear and recurrent layers
        return len(other) == 2 and other[1] == classes
    # Pixels are taken by convolutions, and after pooling by linear layers. A transposed one has its
    # inputs first.
    if len(other) == 2:
        return other[1] == classes
    return classes in other[:2]


def check_not_bare(tensors: Tensors, layer: str) -> None:
    """Check that the only matrix is one of a layer.

    A file of one matrix may hold a cosine classifier, whose rows are normalized, or anything. With
    a bias beside it, it is a linear layer that was saved alone.
    """
    prefix = f"{layer}." if layer else ""
    # Without a name of its own, or with that of a whole model alone.
    is_bare = WRAPPER.sub("", prefix, count=1) == ""
    if is_bare and f"{prefix}bias" not in tensors.spans:
        matrix = f"{prefix}weight {list(tensors.all_shapes[layer])}"
        reason = f"holds a matrix {matrix} of no layer, whose rows may be normalized"
        raise tensors.error(reason, Advice("head", f"{prefix}weight", "if they are not"))


def check_block_adds_nothing(tensors: Tensors, head: LayerSpans) -> None:
    """Check that the block around a layer has no bias of its own and no attention.

    Graph convolutions do: they add a bias behind the sum over neighbors, or weigh neighbors by
    vectors called `att_...`, which see the scaled rows.
    """
    block, _, _ = head.key.rpartition(".")
    if not head.key:
        return
    prefix = f"{block}." if block else ""
    for key, span in tensors.spans.items():
        leaf = key.removeprefix(prefix)
        if not key.startswith(prefix) or "." in leaf:
            continue
        if leaf == "bias" and span.shape == (head.classes,):
            reason = "adds to its outputs and would not be scaled with them"
        elif leaf.startswith("att_"):
            reason = "weighs them by what they are"
        else:
            continue
        instead = "adjust the scores instead (levelhead apply)"
        raise tensors.error(f"{head.key} is not the head alone: {key} {reason}; {instead}")


def is_squeezenet(tensors: Tensors) -> bool:
    """Return whether the layers are those of a SqueezeNet, in which a ReLU follows the classifier.

    Known by the names of its fire modules. Its head may be scaled, but what is added to its bias is
    cut where it makes a logit negative.
    """
    names = {layer.rpartition(".")[2] for layer in tensors.weights}
    return {"squeeze", "expand1x1", "expand3x3"} <= names


def overlap(a: Span, b: Span) -> bool:
    """Return whether two tensors have bytes of the file in common.

    Args:
        a: a tensor of a head, whose numbers lie one after another.
        b: any other; of a dtype that is not known, or not in one piece, `reach` says how far it
            goes.
    """
    size = b.nbytes if b.dtype in HEAD_DTYPES else b.reach
    return (
        a.file == b.file
        and a.key != b.key
        and a.offset < b.offset + size
        and b.offset < a.offset + a.nbytes
    )
