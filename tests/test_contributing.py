"""What CONTRIBUTING.md walks through runs as it stands there, and what it names exists."""

import re
from pathlib import Path

import pytest

from levelhead.core.metrics import METRICS
from levelhead.core.rules import RULES
from levelhead.files.formats import MODEL_FORMATS

from .test_readme import blocks, run_page

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
TEXT = PAGE.read_text(encoding="utf-8")
SOURCES = ROOT / "src"


TABLES = (METRICS, RULES, MODEL_FORMATS)


@pytest.fixture
def restored_tables():
    """The page adds to these tables; afterwards they are as they were."""
    before = [dict(table) for table in TABLES]
    yield
    for table, entries in zip(TABLES, before, strict=True):
        table.clear()
        table.update(entries)


def test_one_tune_one_adjust_and_a_metric_a_rule_and_a_format_of_ones_own(
    tmp_path, monkeypatch, restored_tables
):
    before = [set(table) for table in TABLES]
    assert run_page(PAGE, tmp_path / "page", monkeypatch) is None
    added = [set(table) - names for table, names in zip(TABLES, before, strict=True)]
    assert added == [{"macro_f2"}, {"effective-number"}, {"mine"}]


def test_every_file_and_folder_that_is_named_exists():
    rooms = [ROOT, SOURCES, SOURCES / "levelhead", SOURCES / "levelhead_lab"]
    named = re.findall(r"`([\w./-]+(?:\.(?:py|md|toml|txt|sh|yml|cff)|/))`", TEXT)
    assert len(named) > 30
    assert [name for name in named if not any((room / name).exists() for room in rooms)] == []


def test_every_target_of_make_that_is_named_exists():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    commands = [block.code for block in blocks(TEXT) if block.language == "sh"]
    named = re.findall(
        r"make ([\w-]+)", "\n".join(commands) + " ".join(re.findall(r"`[^`]+`", TEXT))
    )
    assert len(named) > 10
    assert set(named) <= targets
