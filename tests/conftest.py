"""What tests of every command share."""

import sys
from collections.abc import Callable

import pytest

from levelhead.cli import main


@pytest.fixture
def levelhead(monkeypatch, capfd) -> Callable[..., tuple[int, str, str]]:
    """The command line in this process: exit status, stdout, stderr."""

    def command(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["levelhead", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return (int(ended.value.code or 0), *capfd.readouterr())

    return command
