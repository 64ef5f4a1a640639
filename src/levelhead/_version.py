"""The version, in a module of its own: what states it in a file need not load the package."""

__version__ = "0.1.0"
