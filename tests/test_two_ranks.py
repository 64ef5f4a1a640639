"""The two processes that tests of distributed training run in: both must end well, and neither is left behind."""

import pytest


def test_both_processes_run_the_script_with_their_rank_and_the_place_to_meet(
    tmp_path, in_two_processes
):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nPath(sys.argv[2] + sys.argv[1]).write_text(__name__)\n"
    )
    in_two_processes(script)
    assert {path.name: path.read_text() for path in tmp_path.glob("meet*")} == {
        "meet0": "__main__",
        "meet1": "__main__",
    }


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_fails_is_shown_and_the_one_that_waits_for_it_is_stopped(
    rank, tmp_path, in_two_processes
):
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys, time\nassert sys.argv[1] != '{rank}', 'this one'\ntime.sleep(100)\n"
    )
    with pytest.raises(AssertionError, match="AssertionError: this one"):
        in_two_processes(script)
