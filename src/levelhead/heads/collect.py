"""The logits and labels of a torch model over a loader. torch is used only where the caller already has it."""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ..core.class_labels import IGNORED, flatten_positions
from ..support.arrays import Array, is_torch
from ..support.errors import LevelheadError
from ..support.progress import StageProgress
from ..support.warnings import LeakageWarning, warn
from .evaluating import evaluating
from .head_inputs import HeadInputs

LABEL_KEYS = ("labels", "label", "targets", "target", "y")  # of a batch that is a dict
BATCHES = "expected batches (inputs, labels), or dicts with 'labels'"
# Model, batch on its device -> logits [n, K], labels [n].
BatchScores = Callable[[Any, Any], tuple[Array, Array]]


class Collected(tuple[Array, Array]):
    """Logits [N, K] and labels [N], as a pair; `features` [N, d], what the head takes, where they were asked for."""

    features: Array | None

    def __new__(cls, logits: Array, labels: Array, features: Array | None = None) -> "Collected":
        pair = super().__new__(cls, (logits, labels))
        pair.features = features
        return pair

    def __getnewargs__(self) -> tuple[Array, Array, Array | None]:
        return (*self, self.features)


def is_module(model: Any) -> bool:
    """Return whether something is a torch module."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def collect(
    model: Any,
    loader: Iterable[Any],
    *,
    scores: BatchScores | None = None,
    gather: Callable[[Array], Array] | None = None,
    ignore_index: int = IGNORED,
    progress: StageProgress | None = None,
    features: bool = False,
    layer: Any = None,
) -> Collected:
    """Return the logits [N, K] of a torch model and the labels [N], over all batches of a loader.

    The model runs in evaluation mode and without gradients, on the device it is on. Each of its modules is left in the
    mode that it was in.

    Args:
        model: any torch module whose output is logits, a tuple that begins with them, or a dict that has them.
        loader: of held-out samples: a DataLoader, or anything that gives batches. They are (inputs, labels), (input,
            ..., labels), or dicts with the key `labels` (or label, targets, target, y), whose rest goes to the model.
        scores: a function of the model and a batch that gives logits and labels, for batches of other kinds.
        gather: called with the logits and the labels of each batch, for the samples of other processes.
        ignore_index: the label of tokens or pixels that are left out.
        progress: called with ("logits", batches done, batches in all), where the loader knows how many there are.
        features: keep what the head takes, too: `adjust_` needs it where something is to be added to a head without a
            bias.
        layer: the head, if its features are to be kept and it is not found or not unique.

    Returns:
        Logits and labels, on the CPU; of tokens or pixels, one row each. One logit z per sample becomes (0, z). Where
        they were asked for, `features` [N, d] are an attribute of the pair.

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
    of_batch, found = scores or batch_scores, []
    taken = HeadInputs(model, layer) if features else None
    device = next((p.device for p in model.parameters()), None)
    total = len(loader) if hasattr(loader, "__len__") else 0  # type: ignore[arg-type]
    with evaluating(model), torch.no_grad():
        for done, batch in enumerate(loader, start=1):
            run = partial(of_batch, model, _moved(batch, device))
            scored, inputs = (run(), None) if taken is None else taken.of(run)
            logits, labels = _as_samples(*scored)
            if gather is not None:
                logits, labels = gather(logits), gather(labels)
                inputs = None if inputs is None else gather(inputs)
            if logits.ndim < 3 or bool((labels != ignore_index).any()):
                flat, kept, _ = flatten_positions(logits, labels, ignore_index=ignore_index)
                rows = [flat.cpu(), torch.as_tensor(kept).cpu()]
                if inputs is not None:
                    options = {"ignore_index": ignore_index}
                    rows.append(flatten_positions(inputs, labels, **options)[0].cpu())
                found.append(rows)
            if progress is not None and total:
                progress("logits", done, total)
    if not found:
        raise LevelheadError("the loader gave no batch with a label", parameter="loader")
    return Collected(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def check_held_out(loader: Any) -> None:
    """Refuse a loader that is one of training data, as far as its sampler shows it; warn if that is only likely."""
    sampler = getattr(loader, "sampler", None)
    weighted = "WeightedRandomSampler"
    if type(sampler).__name__ == weighted or getattr(sampler, "replacement", False):
        drawn = "the loader draws some samples twice and leaves others out, as those of training data do"
        raise LevelheadError(
            f"{drawn}; pass a loader of held-out samples, each once", parameter="loader"
        )
    if type(sampler).__name__ != "RandomSampler":
        return
    if getattr(loader, "drop_last", False):
        like = "so it looks like one of training data, on which nothing can be chosen"
        instead = "pass a loader of held-out samples, with shuffle=False"
        raise LevelheadError(
            f"the loader shuffles and drops its last batch, {like}; {instead}", parameter="loader"
        )
    wrong = "what is chosen on training data is wrong, so pass held-out samples (shuffle=False)"
    warn(f"the loader shuffles, as those of training data do; {wrong}", LeakageWarning)


def batch_scores(model: Any, batch: Any) -> tuple[Array, Array]:
    """Return the logits and labels of one batch: (inputs, labels), (input, ..., labels), or a dict with labels."""
    if isinstance(batch, Mapping) or hasattr(batch, "keys"):
        if (key := next((key for key in LABEL_KEYS if key in batch), None)) is None:
            raise LevelheadError(
                f"{BATCHES}, got a dict with {', '.join(map(str, batch))}", parameter="loader"
            )
        return _logits_in(
            _call(model, {name: batch[name] for name in batch if name != key})
        ), batch[key]
    if not isinstance(batch, Sequence) or isinstance(batch, str) or len(batch) < 2:
        raise LevelheadError(f"{BATCHES}, got {type(batch).__name__}", parameter="loader")
    *inputs, labels = batch
    by_name = len(inputs) == 1 and isinstance(inputs[0], Mapping)
    return _logits_in(_call(model, inputs[0]) if by_name else model(*inputs)), labels


def _call(model: Any, inputs: Mapping[str, Any]) -> Any:
    """Call a model with named inputs; a single one is passed by position where its name is not that of the model."""
    known = inspect.signature(model.forward).parameters
    unknown = sorted(set(inputs) - set(known))
    if not unknown or any(one.kind is one.VAR_KEYWORD for one in known.values()):
        return model(**inputs)
    if len(inputs) == 1:
        return model(*inputs.values())
    takes = f"it takes {', '.join(known)}: give batches of these and of labels"
    raise LevelheadError(
        f"the model's forward does not take {', '.join(unknown)}; {takes}", parameter="loader"
    )


def _logits_in(output: Any) -> Any:
    """Return the logits within what a model returned."""
    found = output
    if isinstance(output, Mapping):
        found = output.get("logits")
    elif hasattr(output, "logits"):
        found = output.logits
    elif isinstance(output, tuple | list) and output:
        found = output[0]
    if not is_torch(found):
        keys = ""
        if isinstance(output, Mapping):
            keys = f" with {', '.join(map(str, output))}"
        expected = "logits [N, K] from the model, a tuple that begins with them or a dict that has 'logits'"
        raise LevelheadError(
            f"expected {expected}, got {type(output).__name__}{keys}", parameter="model"
        )
    return found


def _as_samples(logits: Any, labels: Any) -> tuple[Any, Any]:
    """Return logits of one column as two, and labels as a tensor of whole numbers next to them."""
    import torch

    labels = torch.as_tensor(labels, device=logits.device)
    if len(logits) != len(labels):
        raise LevelheadError(
            f"a batch has {len(logits)} samples, but {len(labels)} labels", parameter="loader"
        )
    if logits.ndim == 1 or (logits.ndim == 2 and logits.shape[1] == 1):
        z = logits.reshape(-1, 1)
        labels = labels.reshape(-1)
        logits = torch.cat([torch.zeros_like(z), z], dim=1)
        if bool((labels == labels.round()).all()):
            labels = labels.long()
    return logits, labels


def _moved(batch: Any, device: Any) -> Any:
    """Return a batch with its tensors on the device; what is not a tensor or a container of them stays."""
    if device is not None and hasattr(batch, "to") and (is_torch(batch) or hasattr(batch, "keys")):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {key: _moved(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        return [_moved(value, device) for value in batch]
    return batch
