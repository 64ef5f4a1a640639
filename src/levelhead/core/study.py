"""The study, `levelhead_lab`: a package above this one, whose functions are looked up by name when they are needed."""

from importlib import import_module
from typing import Any


def from_the_study(name: str) -> Any:
    """Return a function or a module of `levelhead_lab`, by "module:function" or "module"."""
    module, _, function = name.partition(":")
    home = import_module(f"levelhead_lab.{module}")
    return getattr(home, function) if function else home
