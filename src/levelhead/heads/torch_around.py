"""What stands around a layer of a torch model and may bend its outputs.

Without an input to run the model on, only what is registered can be seen: in a plain `Sequential`
the order of its modules is the order in which they run; anywhere else it is a hint, and doubts are
errors that ask for an example.

torch_find.py asks these when it has found a layer and has no example; torch_proof.py asks again
where something is to be added.
"""

from collections.abc import Iterator, Sequence

from torch import nn
from torch.nn.utils import parametrize

from ..core.label_task import PROBLEM_TYPES
from ..support.errors import LevelheadError
from ..support.types import LabelTask
from .candidates import is_logit_scale
from .torch_layers import layer_shape, outputs

# What may follow a head without undoing the scaling of its rows: nothing learned, nothing that
# mixes them but softmax.
HARMLESS_MODULES = (
    nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Flatten, nn.Unflatten, nn.Upsample, nn.ReLU, nn.AvgPool1d,
    nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.MaxPool1d, nn.MaxPool2d, nn.AdaptiveMaxPool1d,
    nn.AdaptiveMaxPool2d, nn.Softmax, nn.Softmax2d, nn.LogSoftmax, nn.Sigmoid,
)  # fmt: skip


def is_plain_sequence(block: nn.Module) -> bool:
    """Return whether a block runs its modules one after the other."""
    return isinstance(block, nn.Sequential) and type(block).forward is nn.Sequential.forward


def first_harmful(modules: Sequence[nn.Module]) -> nn.Module | None:
    """Return the first module that may not follow a head."""
    return next((module for module in modules if not isinstance(module, HARMLESS_MODULES)), None)


def modules_after(model: nn.Module, path: str) -> Iterator[tuple[nn.Module, list[nn.Module]]]:
    """Yield each block around a layer, with the modules after the layer in it.

    From the innermost block to the model itself.
    """
    while path:
        path, _, name = path.rpartition(".")
        block = model.get_submodule(path)
        later = list(block._modules.values())[list(block._modules).index(name) + 1 :]
        yield block, [module for module in later if module is not None]


def check_no_norm_after(model: nn.Module, path: str) -> None:
    """Check that no norm of K numbers is registered next in a block around the layer.

    It would undo the scaling: a batch norm divides by the spread that a factor multiplied.

    Raises:
        LevelheadError: there is one; an example can show that it does not follow the layer.
    """
    rows, columns = layer_shape(model.get_submodule(path)) or (0, 0)
    # A norm of as many inputs as outputs could stand before the layer.
    if rows == columns:
        return
    for _, later in modules_after(model, path):
        after = first_harmful(later)
        if after is not None and _features_of(after) == rows:
            norm = f"a {type(after).__name__} of its {rows} outputs seems to come after it"
            instead = "pass an example input if it does not"
            raise LevelheadError(f"{path} is not the head: {norm}; {instead}")


def _features_of(norm: nn.Module) -> int | None:
    """Return how many features a norm has one number for; None if it has other shapes.

    BatchNorm has `num_features`, GroupNorm `num_channels`, LayerNorm `normalized_shape`; RMSNorm
    and PReLU may have only their weight.
    """
    weight = norm._parameters.get("weight")
    if weight is not None and not nn.parameter.is_lazy(weight) and weight.ndim == 1:
        return len(weight)
    for name in ("num_features", "num_channels", "normalized_shape"):
        size = getattr(norm, name, None)
        if isinstance(size, tuple | list) and len(size) == 1:
            size = size[0]
        if isinstance(size, int):
            return size
    return None


def check_parent_adds_nothing(model: nn.Module, path: str) -> None:
    """Check that the block around a layer adds nothing to its outputs.

    Graph convolutions have a bias of their own, or attention: those of PyTorch Geometric hold a
    linear layer `lin` beside a `bias` of the block.

    Raises:
        LevelheadError: the block has a bias of K numbers, or weights of attention.
    """
    if not path:
        return
    block = model.get_submodule(path.rpartition(".")[0])
    rows = outputs(model.get_submodule(path))
    for name, parameter in block._parameters.items():
        if parameter is None or nn.parameter.is_lazy(parameter):
            continue
        if name == "bias" and tuple(parameter.shape) == (rows,):
            reason = "adds to its outputs and would not be scaled with them"
        elif name.startswith("att_"):
            reason = "weighs them by what they are"
        else:
            continue
        needs = "pass an example input if it does not"
        raise LevelheadError(f"{path} is not the head alone: {name} of its block {reason}; {needs}")


def last_with_weights(model: nn.Module) -> nn.Module | None:
    """Return the last module with a matrix of its own, but for embeddings.

    Last as they are registered, which need not be the order in which they run. Modules of vectors
    alone, such as norms, are passed over: one after the head is looked for by
    `check_no_norm_after`.
    """
    last = None
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag | parametrize.ParametrizationList):
            continue
        parameters = [p for p in module._parameters.values() if p is not None]
        is_lazy = any(map(nn.parameter.is_lazy, parameters))
        # A quantized layer has its weights elsewhere, and a parametrized one in a module inside.
        has_matrix = any(p.dim() > 1 for p in parameters) or parametrize.is_parametrized(module)
        if is_lazy or has_matrix or layer_shape(module) is not None:
            last = module
    return last


def scale_around(model: nn.Module, path: str) -> str | None:
    """Return the name of a scale or temperature next to the layer, or in the model.

    It may be a tensor, or a number but 1; None if there is none.
    """
    rows = outputs(model.get_submodule(path))
    for block in (model.get_submodule(path.rpartition(".")[0]), model):
        for name, p in (*block._parameters.items(), *block._buffers.items()):
            if p is None or nn.parameter.is_lazy(p):
                continue
            if is_logit_scale(name, p.numel(), rows):
                return name
        for name, number in vars(block).items():
            kinds = (float,) if name == "T" else (int, float)  # a whole T is a number of steps
            if type(number) in kinds and number != 1 and is_logit_scale(name, 1, rows):
                return name
    return None


def known_task(model: nn.Module, path: str) -> tuple[LabelTask, str] | None:
    """Return whether samples have one class or several labels, and how that is known.

    None if it is not known.
    """
    if outputs(model.get_submodule(path)) != 1:  # a sigmoid of one logit is that of two classes
        for block, later in modules_after(model, path):
            if not is_plain_sequence(block):
                continue
            for module in later:
                if isinstance(module, nn.Sigmoid):
                    return "multilabel", "a Sigmoid follows it"
                if isinstance(module, nn.Softmax | nn.LogSoftmax):
                    return "multiclass", "a softmax follows it"
    # Else what the config of a transformers model says of its loss.
    problem = getattr(getattr(model, "config", None), "problem_type", None)
    return PROBLEM_TYPES.get(str(problem))
