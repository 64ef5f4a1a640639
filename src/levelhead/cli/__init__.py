"""The command line: parse, call one function, print. Heavy imports wait until a command needs them."""

from __future__ import annotations

import os
import sys

from . import models, training  # noqa: F401  (their commands join the app, in this order)
from .common import app

EXTRAS = {"torch": "torch", "sklearn": "sklearn", "onnx": "onnx", "matplotlib": "plot", "ray": "ray"}  # module -> extra

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line: 0 when what was asked was done, 2 with one line on bad input."""
    try:
        app()
    except KeyboardInterrupt:  # before a command begins
        sys.exit(130)
    except (ValueError, OSError, ImportError) as error:
        if os.environ.get("LEVELHEAD_DEBUG"):
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            message = f"{error.filename}: {error.strerror.lower()}"
        if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
            message = f"this needs {error.name}: pip install 'levelhead[{EXTRAS[error.name]}]'"
        print(f"levelhead: {message}", file=sys.stderr)
        sys.exit(2)
