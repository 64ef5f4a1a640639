"""A place where a head can live: what must happen to it, and how that is judged.

A place is judged by what its scores do: after RS at strength 0.5 each must be the old one times (n_1 / n)^0.5 or,
where the rule is the shift, plus its logarithm, as numpy computes it. A refusal must leave everything as it was, and
name what could be the head or what to do.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

import levelhead as lh

# At strength 1/2, (n_1 / n)^0.5 of these counts are the factors 1, 2 and 5.
COUNTS = [100, 25, 4]
FACTORS = np.array([1.0, 2.0, 5.0])
RNG = np.random.default_rng(0)
# What models are run on, [6, 8].
X = RNG.normal(size=(6, 8)).astype(np.float32)


@dataclass(frozen=True)
class Place:
    """One row: a kind of model, and what must happen.

    Args:
        name, library: of the model, and what is needed to make it.
        judge: (folder to work in) -> what was edited; raises LevelheadError for a refusal, AssertionError for a wrong
            edit.
        expected: `right`, or `refused`.
        says: what the layer, or the reason of a refusal, must contain.
    """

    name: str
    library: str
    judge: Callable[[Path], str]
    expected: Literal["right", "refused"] = "right"
    says: str = ""


@dataclass(frozen=True)
class Verdict:
    """What happened: `right`, `refused` or `wrong`, with the layers or the reason."""

    verdict: str
    detail: str


def judge(place: Place, folder: Path) -> Verdict:
    """Make a model, try to adjust it, and say what happened."""
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Verdict("right", place.judge(folder))
    except lh.LevelheadError as error:
        return Verdict("refused", str(error).replace(f"{folder}/", ""))
    except AssertionError as error:
        return Verdict("wrong", str(error))


def as_expected(place: Place, verdict: Verdict) -> bool:
    """Return whether what happened is what the table says must happen."""
    return verdict.verdict == place.expected and place.says in verdict.detail


def check_scaled(before: Any, after: Any, by: Any = FACTORS) -> None:
    """Check that scores are the old ones times a factor for each class, and that this shows."""
    before = np.asarray(before, np.float64)
    expected = before * by
    largest = np.abs(expected).max()
    off = float(np.abs(np.asarray(after, np.float64) - expected).max() / largest)
    assert off < 1e-4, f"scores are {off:.3g} off"
    # Scores near 0 would be scaled rightly by anything.
    assert np.abs(before - expected).max() > 1e-2 * largest, "the factors change nothing here"


def library(name: str) -> Any:
    """Import a library, or one of its modules."""
    return importlib.import_module(name)
