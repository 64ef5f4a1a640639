"""Completion in the shell of what the commands of the study take."""

import pytest

from levelhead_lab.methods import METHODS

from ..cli.test_completion import LEVELHEAD, ask_bash

pytestmark = pytest.mark.skipif(
    not LEVELHEAD.exists(), reason="the command is not installed in this environment"
)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["t"], ["tune", "train"]),
        (["train", "--engine", ""], ["auto", "plain", "fast"]),
        (["train", "--dtype", "b"], ["bfloat16"]),
        (["train", "--profile", "s"], ["step"]),
        (["train", "--track", ""], ["tensorboard", "mlflow", "wandb"]),
        (["train", "--recipe", "kim2020-"], ["kim2020-batch", "kim2020-64"]),
        (["sweep", "--executor", "p"], ["packed"]),
        (
            ["reproduce", "table"],
            ["table1", "table2", "table3", "table2-sources", "table2-readings"],
        ),
        (["methods", "ldam"], [name for name in METHODS if name.startswith("ldam")]),
    ],
)
def test_bash_is_answered(words, expected):
    assert ask_bash(*words) == expected
