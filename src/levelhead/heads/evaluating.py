"""A torch model in evaluation mode for a while."""

from contextlib import contextmanager
from typing import Any


@contextmanager
def evaluating(model: Any) -> Any:
    """Put a model into evaluation mode, and each of its modules back into the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
