"""Heads and models in memory: `adjust`, `adjust_`, and `rescale_`, the paper's RS.

`adjust_` and `rescale_` open a model as a place and have `apply` (heads/apply.py) change it;
`check_adjust` asks before a training what can be asked without weights. `adjust` works on a `Head`
by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..core.arguments import finite_number
from ..core.counts import Counts
from ..core.head import Head, check_finite
from ..core.rules import Rescale, Rule
from ..core.tuned import Tuned
from ..core.tuned_checks import check_for_head
from ..support.arrays import Array
from ..support.errors import LevelheadError
from ..support.extras import naming_what_is_missing
from ..support.types import BiasPolicy, Missing
from .adjusted import Adjusted
from .along import put_along
from .apply import apply, check_fits, check_no_single_logit
from .candidates import Example, LayerChoice
from .choice import Chosen, read_choice
from .in_memory import InMemory

# A torch module or a Keras model; neither library is imported until one is given.
Model: TypeAlias = Any


def adjust(
    head: Head,
    tuned: Tuned | Rule | str | Path,
    counts: Counts | None = None,
    *,
    features: Array | None = None,
) -> Head:
    """Return a new head, adjusted by what was tuned, or by a rule at a strength of one's own.

    ``w_k, b_k <- scale_k (w_k, b_k) + (0, offset_k)``: a head without a bias gets one if something
    is added to it, unless `features` are given. It does so also where the gain is uncertain;
    `tuned.worthwhile` says whether to.

    Args:
        head: weight [K, d] and, where there is one, bias [K]; or [1, d] where two classes share one
            logit, to which only offsets can be added: that of the second class less the first's.
        tuned: a `Tuned`, the path of a file that `levelhead tune` wrote, or a rule with a strength,
            such as ``lh.rules.Rescale(0.5)``.
        counts: training samples of each class, for such a rule; `lh.rules.Tau` needs none.
        features: [N, d], what the head takes, of held-out samples: a head without a bias then takes
            offsets into its weights, ``w_k + offset_k u``, with u the direction in which features
            are nearest to 1.

    Returns:
        A new head, of the same library, dtype and device; the one given is not changed.

    Raises:
        LevelheadError: it was tuned for other classes or another order of them, would multiply a
            head of one logit, or needs counts that are not given.

    >>> from levelhead import rules
    >>> adjust(Head(np.eye(2)), rules.Rescale(0.5), [100, 25]).norms
    array([1., 2.])
    >>> adjust(Head(np.eye(2)), rules.Shift(1.0), [100, 1]).bias
    array([0.        , 4.60517019])
    """
    chosen = read_choice(tuned)
    check_finite(head)
    if chosen.multiplies:
        check_no_single_logit(head.classes, "the head")
    if chosen.tuned is not None:
        check_for_head(chosen.tuned, head.classes, head.names, "the head")
    adjustment = chosen.adjustment([head], chosen.counts(counts, head.classes, head.names))
    if adjustment.adds and head.bias is None and features is not None:
        return put_along(head, adjustment, features)[0]
    return adjustment.head(head)


def adjust_(
    model: Model,
    tuned: Tuned | Rule | str | Path,
    counts: Counts | None = None,
    *,
    layer: LayerChoice = None,
    example: Example = None,
    background: int | str | None = None,
    logits: Array | None = None,
    features: Array | None = None,
    again: bool = False,
) -> Adjusted:
    """Find the head of a model and adjust it in place, by what was tuned or by a rule.

    ``w_k, b_k <- scale_k (w_k, b_k) + (0, offset_k)``. Parameters keep their identity, so
    optimizers, gradients and wrappers stay valid. If anything is wrong, nothing is changed. The
    result's `restore()` takes it back. It adjusts also where the gain is uncertain; ask
    `tuned.worthwhile` first.

    Where something is added to a layer without a bias, `features` put it into the weights: ``w_k +
    offset_k u``, with u the direction in which features are nearest to 1; the result's `along` says
    how near. Else the layer gets a bias: a new parameter, in the state dict too, which `restore()`
    takes out again. An optimizer made before does not know it, and models of transformers, which
    would lose it where they are saved and loaded, refuse it.

    Args:
        model: any torch module: a network, a transformers or timm model, one sharded by FSDP2; or a
            Keras 3 model.
        tuned: a `Tuned`, the path of a file that `levelhead tune` wrote, or a rule with a strength,
            such as ``lh.rules.Rescale(0.5)``. A head with one logit takes
            what was tuned on two classes and only adds.
        counts: training samples of each class, for such a rule: a list, {class: n} (by name if the
            model's config has them), or labels; `lh.rules.Tau` needs none.
        layer: the head, if it is not found or not unique: a path, the module, or a list if several
            feed one output.
        example: an input to run the model on, to find the head by what it does.
        background: a class that must stay as it is, by index or name, such as "no object" in
            detection. What was tuned leaves it alone if it was tuned with it.
        logits: [N, K], the model's logits before: in half precision, predictions that rounding
            could flip are counted.
        features: [N, d], what the head takes, of held-out samples:
            ``lh.collect(model, loader, features=True).features``.
        again: allow adjusting a head that was adjusted already and not changed since.

    Returns:
        What was done, whether it is known to arrive in the logits, and `restore()`.

    Raises:
        LevelheadError: no head is found, or more than one; its layer is tied, quantized or
            computed; what was tuned does not fit it, or would not arrive in the logits; or it was
            adjusted already. The message says what to do.

    >>> from levelhead import rules
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(8, 2, bias=False))
    >>> with adjust_(model, rules.Shift(1.0), [400, 100]) as adjusted:
    ...     model[0].bias.detach(), adjusted
    (tensor([0.0000, 1.3863]), Adjusted(shift, strength 1, 2 classes; 0: new bias +0..+1.39))
    >>> model[0].bias is None
    True
    """
    chosen = read_choice(tuned)
    place = _head_of(model, layer, example, chosen.classes(counts))
    return apply(
        place,
        chosen,
        counts,
        background=background,
        logits=logits,
        features=features,
        again=again,
    )


def check_adjust(
    model: Model,
    tuned: Tuned | Rule | str | Path,
    counts: Counts | None = None,
    *,
    layer: LayerChoice = None,
) -> None:
    """Check what `adjust_` would, before training, reading no weight.

    A callback that adjusts when training ends asks this when it begins: after hours is too late to
    hear that the head is not found.

    Args:
        model, tuned, counts, layer: as in `adjust_`.

    Raises:
        LevelheadError: as `adjust_` would.
    """
    chosen = read_choice(tuned)
    place = _head_of(model, layer, None, chosen.classes(counts))
    check_fits(place, chosen)
    rows = place.facts.sizes[0]
    class_counts = chosen.counts(counts, rows, place.facts.names)
    any_head = Head(np.ones((rows, 1)))
    chosen.adjustment([any_head], class_counts)  # refuses a rule without a strength
    # Last, as a caller who has features by then goes on after this one.
    if chosen.adds:
        for path in place.without_bias():
            place.check_takes_bias(path)


def rescale_(
    model: Model,
    counts: Counts,
    *,
    gamma: float,
    layer: LayerChoice = None,
    example: Example = None,
    bias: BiasPolicy = "scale",
    missing: Missing = "error",
    background: int | str | None = None,
    logits: Array | None = None,
    again: bool = False,
) -> Adjusted:
    """Find the head of a model and scale its weight vectors by how rare their classes are (RS).

    ``w_i <- (n_1 / n_i)^gamma w_i``, with n_1 the largest count: `adjust_` by the paper's rule.

    Args:
        model, counts, layer, example, logits, again: as in `adjust_`.
        gamma: strength; larger gives rare classes more of the space.
        bias: `scale` (scaling the head is then scaling the logits) or `keep`.
        missing: a class without samples is an `error`, or `neutral` (left as it is).
        background: a class that is left alone, by index or name; its count is no n_1.

    Returns:
        What was done, with `restore()`. It warns where norms do not follow the counts, and where
        scaling cannot change a prediction, as with the opposite rows of two classes.

    Raises:
        LevelheadError: as `adjust_` does.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False))
    >>> _ = model[0].weight.data.copy_(torch.eye(2))
    >>> rescale_(model, [100, 25], gamma=0.5)
    Adjusted(rescale, strength 0.5, 2 classes; 0: norms 1..1 -> 1..2)

    Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020.
    """
    if isinstance(gamma, Tuned):
        instead = "what was tuned is for lh.adjust_(model, tuned)"
        raise LevelheadError(f"expected a number; {instead}", parameter="gamma")
    chosen = Chosen(Rescale(finite_number("gamma", gamma)))
    return apply(
        _head_of(model, layer, example, chosen.classes(counts)),
        chosen,
        counts,
        bias=bias,
        missing=missing,
        background=background,
        logits=logits,
        again=again,
    )


def _head_of(model: Model, layer: LayerChoice, example: Example, size: int | None) -> InMemory[Any]:
    """Open a model in memory as a place, and find its head.

    Args:
        size: likely, but not certain, to be the number of classes.
    """
    place: InMemory[Any]
    # Keras's models are torch modules, too, where it runs on torch.
    if any(kind.__module__.partition(".")[0] == "keras" for kind in type(model).__mro__):
        from .keras import KerasModel

        place = KerasModel(model)
    else:
        with naming_what_is_missing():
            from .torch import TorchModel
        place = TorchModel(model)
    place.find(layer=layer, example=example, classes=place.likely_classes(size))
    return place
