"""The networks that come with the package: CIFAR-10 at ratio 100, Baseline and WVN, of `levelhead reproduce`."""

from __future__ import annotations

from importlib.resources import as_file, files

from ..io.snapshot import Snapshot

METHODS = ("baseline", "wvn")
COLUMN = "cifar10:100"


def shipped() -> dict[str, Snapshot]:
    """Head, counts, and the features of the training and test images, in half precision, of each network by method."""
    found = {}
    for method in METHODS:
        with as_file(files("levelhead.paper").joinpath(f"cifar10-100-{method}.safetensors")) as path:
            found[method] = Snapshot.load(path)
    return found
