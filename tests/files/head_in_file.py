"""The head of a model's file, read and written as a whole."""

from pathlib import Path

from levelhead.files.locate import ModelFile
from levelhead.files.numbers import load
from levelhead.files.output import Output


def read_head(path, key=None):
    located = ModelFile.at(path).locate_head(head=key)
    (layer,) = located.layers
    return load(layer, located.names)


def write_head(path, out, head):
    file = ModelFile.at(path)
    file.format.save(file.locate_head(), [head], Output(Path(out), original=False), None)
