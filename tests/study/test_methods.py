"""`levelhead methods`."""

import json

from typer.testing import CliRunner

from levelhead.cli import app
from levelhead_lab.methods import METHODS


def run(*words):
    result = CliRunner().invoke(app, ["methods", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_table_has_a_line_for_every_method_in_order():
    first = [line.split()[0] for line in run().splitlines()[1:] if not line.startswith(" ")]
    assert first == list(METHODS)


def test_a_card_says_what_the_file_says():
    said = run("ldam")
    assert METHODS["ldam"].card.strip() in said
    assert "cosine head" in said


def test_json_holds_the_same():
    listed = json.loads(run("--json"))["methods"]
    assert [row["name"] for row in listed] == list(METHODS)
    assert json.loads(run("wvn+rs", "--json")) == next(
        row for row in listed if row["name"] == "wvn+rs"
    )


def test_an_unknown_method_is_one_line_and_exit_2(levelhead):
    status, _, err = levelhead("methods", "nope")
    assert status == 2
    assert err.count("\n") == 1
    assert err.startswith("levelhead: unknown method 'nope'; the methods are baseline, ")
