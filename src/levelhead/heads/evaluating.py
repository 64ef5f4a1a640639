"""A torch model in evaluation or training mode for a while, or run as it is written.

``model.eval()`` and then ``model.train()`` would not do: modules that a user froze in evaluation
mode would be trained from then on.
"""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def evaluating(model: "nn.Module") -> AbstractContextManager[None]:
    """Put a model into evaluation mode, and each of its modules back into the mode it was in."""
    return in_mode(model, training=False)


@contextmanager
def in_mode(model: "nn.Module", *, training: bool) -> Iterator[None]:
    """Put a model into training or evaluation mode, and each of its modules back."""
    # Some modules may be frozen, such as batch norms: a single flag would not bring them back.
    modes = [(module, module.training) for module in model.modules()]
    if training:
        model.train()
    else:
        model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def as_written() -> AbstractContextManager[object]:
    """Have torch run modules as they are written, also those that are compiled.

    A compiled one does not run hooks that were registered since on the layers inside it.
    """
    # Where nobody imported it, nothing is compiled; to import it takes seconds.
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    import torch

    return torch.compiler.set_stance("force_eager")
