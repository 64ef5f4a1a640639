"""The logits and labels of a torch model over a loader.

torch is used only where the caller already has it.

`collect` takes a batch, moves it to the model's device, runs the model on it (`batch_scores`, or a
function of the caller's), and keeps what counts: logits [n, K], labels [n] and, if asked for, what
the head took [n, d]. Of tokens or pixels, one row each is kept, without those that are ignored.

    batch --_moved--> on the device --score_batch--> logits, labels --_as_samples--> K >= 2
          --gather--> of all processes --_rows_of--> [n, K], [n], on the CPU

Libraries agree neither on what a batch is nor on what a model returns; `batch_scores`, `_call` and
`_logits_in` know the usual forms, and refuse others with the way out, which is `scores=`.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import length_hint
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..core.class_labels import IGNORED, flatten_positions
from ..support.arrays import Array, is_torch, to_numpy
from ..support.errors import LevelheadError, named, reported_as
from ..support.logits import look_like_sigmoids
from ..support.progress import StageProgress
from ..support.warnings import LeakageWarning, warn
from .candidates import LayerChoice
from .evaluating import evaluating
from .head_inputs import HeadInputs

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

LABEL_KEYS = ("labels", "label", "targets", "target", "y")  # of a batch that is a dict
BATCHES = "expected batches (inputs, labels), or dicts with 'labels'"
Batch: TypeAlias = Any  # whatever a loader gives: a tuple, a dict, an object of some library
# Model, batch on its device -> logits [n, K], labels [n].
BatchScores = Callable[[Any, Batch], tuple[Array, Array]]


class Collected(tuple[Array, Array]):
    """Logits [N, K] and labels [N], as a pair.

    Where they were asked for, `features` [N, d] are what the head takes; else None. It is a tuple
    of two, so that ``logits, labels = lh.collect(model, loader)`` holds whether or not they were.
    """

    features: Array | None

    def __new__(cls, logits: Array, labels: Array, features: Array | None = None) -> "Collected":
        pair = super().__new__(cls, (logits, labels))
        pair.features = features
        return pair

    def __getnewargs__(self) -> tuple[Array, Array, Array | None]:
        return (*self, self.features)


class _Rows(NamedTuple):
    """What is kept of a batch, on the CPU."""

    logits: "Tensor"  # [n, K]
    labels: "Tensor"  # [n]
    features: "Tensor | None"  # [n, d]


def collect(
    model: "nn.Module",
    loader: Iterable[Batch],
    *,
    scores: BatchScores | None = None,
    gather: Callable[[Array], Array] | None = None,
    ignore_index: int = IGNORED,
    progress: StageProgress | None = None,
    features: bool = False,
    layer: LayerChoice = None,
) -> Collected:
    """Return the logits [N, K] of a torch model and the labels [N], over all batches of a loader.

    The model runs in evaluation mode and without gradients, on the device it is on. Each of its
    modules is left in the mode that it was in.

    Args:
        model: any torch module whose output is logits, a tuple that begins with them, or a dict
            that has them.
        loader: of held-out samples: a DataLoader, or anything that gives batches. They are (inputs,
            labels), (input, ..., labels), or dicts with the key `labels` (or label, targets,
            target, y), whose rest goes to the model.
        scores: a function of the model and a batch that gives logits and labels, for batches of
            other kinds.
        gather: called with the logits and the labels of each batch, for the samples of other
            processes.
        ignore_index: the label of tokens or pixels that are left out.
        progress: called with ("logits", batches done, batches in all), where the loader knows how
            many there are.
        features: keep what the head takes, too: `adjust_` needs it where something is to be added
            to a head without a bias.
        layer: the head, if its features are to be kept and it is not found or not unique.

    Returns:
        Logits and labels, on the CPU; of tokens or pixels, one row each. One logit z per sample
        becomes (0, z), and one probability p, of a model that ends in a sigmoid, (1 - p, p). Where
        they were asked for, `features` [N, d] are an attribute of the pair.

    Raises:
        LevelheadError: the loader looks like one of training data, its batches are of another kind,
            the model gives no logits, or no sample has a label. A loader that only shuffles is a
            `LeakageWarning`.

    >>> import torch
    >>> batches = [(torch.zeros(4, 8), torch.zeros(4, dtype=torch.long))] * 2
    >>> [list(part.shape) for part in collect(torch.nn.Linear(8, 3), batches)]
    [[8, 3], [8]]
    >>> collect(torch.nn.Linear(8, 3), batches, features=True).features.shape
    torch.Size([8, 8])
    """
    import torch

    if is_torch(loader) or not isinstance(loader, Iterable) or isinstance(loader, str | Mapping):
        raise LevelheadError(
            f"expected a loader of held-out samples, got {type(loader).__name__}",
            parameter="loader",
        )
    check_held_out(loader)

    # One pass over the loader; what is kept of each batch goes to the CPU at once.
    score_batch = scores or batch_scores
    head_inputs = HeadInputs(model, layer) if features else None
    device = next((p.device for p in model.parameters()), None)
    # 0 for a stream, whose DataLoader has a length and does not tell it.
    total = length_hint(loader)
    kept: list[_Rows] = []
    one_column = False
    # Without gradients, and not in inference mode: tensors made there could never be used in
    # training.
    with evaluating(model), torch.no_grad():
        for done, batch in enumerate(loader, start=1):
            run = partial(score_batch, model, _moved(batch, device))
            if head_inputs is None:
                scored = run()
                inputs = None
            else:
                scored, inputs = head_inputs.of(run)
            one_column = _is_one_column(scored[0])
            logits, labels = _as_samples(*scored)
            # Each process has samples of its own; after this, each has those of all.
            if gather is not None:
                logits = gather(logits)
                labels = gather(labels)
                if inputs is not None:
                    inputs = gather(inputs)
            # A batch of tokens may have no label at all, and then says nothing.
            if logits.ndim < 3 or bool((labels != ignore_index).any()):
                kept.append(_rows_of(logits, labels, inputs, ignore_index))
            if progress is not None and total:
                progress("logits", done, total)
    if not kept:
        raise LevelheadError("the loader gave no batch with a label", parameter="loader")
    _check_alike(kept)
    all_features = [rows.features for rows in kept if rows.features is not None]
    logits = torch.cat([rows.logits for rows in kept])
    if one_column:
        logits = _of_one_column(logits)
    return Collected(
        logits,
        torch.cat([rows.labels for rows in kept]),
        torch.cat(all_features) if features else None,
    )


def _check_alike(kept: Sequence[_Rows]) -> None:
    """Raise LevelheadError unless all batches have as many logits per row, and labels of one shape."""
    first = kept[0]
    for rows in kept:
        if rows.logits.shape[1:] != first.logits.shape[1:]:
            got = (
                f"{first.logits.shape[1]} in the first batch and {rows.logits.shape[1]} in another"
            )
            expected = "expected as many logits of every sample"
            raise LevelheadError(f"{expected}, got {got}", parameter="model")
        if rows.labels.shape[1:] != first.labels.shape[1:]:
            got = f"{list(first.labels.shape)} in the first batch and {list(rows.labels.shape)}"
            expected = "expected labels of one shape"
            raise LevelheadError(f"{expected}, got {got} in another", parameter="loader")


def _rows_of(
    logits: "Tensor", labels: "Tensor", inputs: "Tensor | None", ignore_index: int
) -> _Rows:
    """Return what is kept of a batch: positions as rows, without those that are ignored.

    Args:
        logits: [n, K], [n, tokens, K] or [n, K, pixels...].
        labels: [n], or one for each position.
        inputs: of the head, shaped as the logits are, with d in place of K; or None.
        ignore_index: the label that is left out.
    """
    import torch

    flat, flat_labels, _ = flatten_positions(logits, labels, ignore_index=ignore_index)
    features = None
    if inputs is not None:
        # The labels tell which positions, as they do for the logits.
        features = flatten_positions(inputs, labels, ignore_index=ignore_index)[0].cpu()
    return _Rows(flat.cpu(), torch.as_tensor(flat_labels).cpu(), features)


def check_held_out(loader: object) -> None:
    """Refuse a loader of training data, as far as its sampler shows it.

    One that only shuffles may be of held-out samples: then it is a warning.

    Args:
        loader: of torch, or anything that has a `sampler`; of others nothing is known.

    Raises:
        LevelheadError: it draws with replacement, or shuffles and drops its last batch.
    """
    # One that was given a batch sampler has another sampler in that, and a meaningless one of its own.
    batch_sampler = getattr(loader, "batch_sampler", None)
    sampler = getattr(batch_sampler, "sampler", getattr(loader, "sampler", None))
    kind = type(sampler).__name__
    if kind == "WeightedRandomSampler" or getattr(sampler, "replacement", False):
        drawn = "the loader draws some samples twice and leaves others out"
        like = "as those of training data do"
        instead = "pass a loader of held-out samples, each once"
        raise LevelheadError(f"{drawn}, {like}; {instead}", parameter="loader")
    if kind != "RandomSampler":
        return
    if getattr(batch_sampler, "drop_last", getattr(loader, "drop_last", False)):
        shuffles = "the loader shuffles and drops its last batch"
        like = "so it looks like one of training data, on which nothing can be chosen"
        instead = "pass a loader of held-out samples, with shuffle=False"
        raise LevelheadError(f"{shuffles}, {like}; {instead}", parameter="loader")
    wrong = "what is chosen on training data is wrong, so pass held-out samples (shuffle=False)"
    warn(f"the loader shuffles, as those of training data do; {wrong}", LeakageWarning)


def batch_scores(model: "nn.Module", batch: Batch) -> tuple[Array, Array]:
    """Return the logits and labels of one batch.

    Args:
        model: any torch module.
        batch: (inputs, labels), (input, ..., labels), or a dict with labels.

    Raises:
        LevelheadError: the batch has no labels, or the model gives no logits.
    """
    # Batches of transformers have keys, but need not be a Mapping.
    if isinstance(batch, Mapping) or hasattr(batch, "keys"):
        key = next((key for key in LABEL_KEYS if key in batch), None)
        if key is None:
            keys = ", ".join(map(str, batch))
            raise LevelheadError(f"{BATCHES}, got a dict with {keys}", parameter="loader")
        inputs = {name: batch[name] for name in batch if name != key}
        return _logits_in(_call(model, inputs)), batch[key]
    if not isinstance(batch, Sequence) or isinstance(batch, str) or len(batch) < 2:
        raise LevelheadError(f"{BATCHES}, got {type(batch).__name__}", parameter="loader")
    *inputs, labels = batch
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        return _logits_in(_call(model, inputs[0])), labels
    return _logits_in(model(*inputs)), labels


def _call(model: "nn.Module", inputs: Mapping[str, object]) -> object:
    """Call a model with named inputs.

    A single one is passed by position where its name is not that of the model: data sets call an
    image `image` or `img`, networks call it `x`.
    """
    from .torch_layers import unwrap

    # A wrapper takes any names, for the model that it wraps.
    parameters = inspect.signature(unwrap(model).forward).parameters
    unknown = sorted(set(inputs) - set(parameters))
    takes_any_name = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if not unknown or takes_any_name:
        return model(**inputs)
    if len(inputs) == 1:
        return model(*inputs.values())
    takes = f"it takes {', '.join(parameters)}: give batches of these and of labels"
    raise LevelheadError(
        f"the model's forward does not take {', '.join(unknown)}; {takes}", parameter="loader"
    )


def _logits_in(output: object) -> Array:
    """Return the logits within what a model returned.

    That is a tensor; the entry or attribute `logits`, as transformers has it; or the first of a
    tuple.
    """
    if isinstance(output, Mapping):
        logits = output.get("logits")
    else:
        logits = getattr(output, "logits", output)
        if logits is output and isinstance(output, tuple | list) and output:
            logits = output[0]
    if not is_torch(logits):
        got = type(output).__name__
        if isinstance(output, Mapping):
            got = f"{got} with {', '.join(map(str, output))}"
        expected = "expected logits [N, K] from the model"
        others = "a tuple that begins with them or a dict that has 'logits'"
        raise LevelheadError(f"{expected}, {others}, got {got}", parameter="model")
    return logits


def _as_samples(logits: "Tensor", labels: Array) -> tuple["Tensor", "Tensor"]:
    """Return logits of one column as two, and labels as a tensor next to them.

    (0, z) has the softmax that z has as a sigmoid, so that everything after this sees two classes.
    """
    import torch

    with (
        named("loader"),
        reported_as("expected labels that are numbers ({})", TypeError, ValueError, RuntimeError),
    ):
        labels = torch.as_tensor(labels, device=logits.device)
    if labels.ndim == 0:
        alone = "expected batches, got a sample by itself: its label has no axis"
        raise LevelheadError(f"{alone}; give the loader a batch_size", parameter="loader")
    # A model that squeezes what it returns makes a single number of a batch of one.
    if logits.ndim == 0 and len(labels) == 1:
        logits = logits.reshape(1)
    if logits.ndim == 0:
        got = "got a single number, as a loss is"
        raise LevelheadError(f"expected logits [N, K] from the model, {got}", parameter="model")
    if len(logits) != len(labels):
        raise LevelheadError(
            f"a batch has {len(logits)} samples, but {len(labels)} labels", parameter="loader"
        )
    # One logit z of two classes: the first has the score 0.
    if _is_one_column(logits):
        z = logits.reshape(-1, 1)
        logits = torch.cat([torch.zeros_like(z), z], dim=1)
        labels = labels.reshape(-1)
        # A binary cross-entropy takes labels as floats.
        if not labels.is_floating_point() or bool((labels == labels.round()).all()):
            labels = labels.long()
    return logits, labels


def _is_one_column(logits: "Tensor") -> bool:
    """Return whether a model gives one number for each sample, [n] or [n, 1]."""
    return logits.ndim < 2 or (logits.ndim == 2 and logits.shape[1] == 1)


def _of_one_column(logits: "Tensor") -> "Tensor":
    """Return logits (0, z) [N, 2] of a model of one output; if that is a sigmoid's, p, probabilities (1 - p, p).

    As of a softmax, `tune` then asks for its kind: an offset for p is none for what comes before the sigmoid.
    """
    import torch

    p = logits[:, 1:]
    if look_like_sigmoids(to_numpy(p)):
        return torch.cat([1 - p, p], dim=1)
    return logits


def _moved(batch: Batch, device: "torch.device | None") -> Batch:
    """Return a batch with its tensors on the device.

    What is not a tensor or a container of them stays as it is. A batch of transformers has a `to`
    of its own, and is asked to move itself.
    """
    if device is not None and hasattr(batch, "to") and (is_torch(batch) or hasattr(batch, "keys")):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {key: _moved(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        return [_moved(value, device) for value in batch]
    return batch
