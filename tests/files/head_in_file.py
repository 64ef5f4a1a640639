"""The head of a model's file, read and written as a whole."""

from pathlib import Path

from levelhead.files.format import Output
from levelhead.files.formats import format_of
from levelhead.files.locate import locate_head
from levelhead.files.spans import load


def read_head(path, key=None):
    found = locate_head(path, head=key)
    (layer,) = found.layers
    return load(layer, found.names)


def write_head(path, out, head):
    format_of(path).save(locate_head(path), [head], Output(Path(out), original=False), None)
