"""Tasks done by workers. Here a task is a piece of Python, and `exec` does it."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from levelhead_lab.runs import workers
from levelhead_lab.runs.workers import run_tasks

DIE = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


def leave(file: Path, text: str = "'done'", first: str = "") -> str:
    return f"{first}\nimport pathlib\npathlib.Path({str(file)!r}).write_text({text})"


def send_much(line) -> None:
    line.recv()
    line.send((0.0, "x" * 200_000))


def send_half(line) -> None:
    line.recv()
    os.write(line.fileno(), (1000).to_bytes(4, "big") + b"half")  # the length of what should follow
    os.kill(os.getpid(), signal.SIGKILL)


class CannotBeRead:
    """A task whose code the worker's machine does not have."""

    def __reduce__(self):
        return exec, ("raise ImportError('no such thing here')",)


@pytest.mark.parametrize("where", ["here", "processes"])
def test_a_failure_is_one_line_and_does_not_stop_the_others(where, tmp_path):
    tasks = [
        "raise ValueError('two\\nlines')",
        leave(tmp_path / "made"),
        "raise TypeError('a bug')",
    ]
    end_of = {end.task: end for end in run_tasks(tasks, exec, where=where, workers=2)}
    assert [(end_of[task].status, end_of[task].error) for task in tasks] == [
        ("failed", "two lines"),
        ("finished", ""),
        ("failed", "TypeError: a bug"),
    ]
    assert (tmp_path / "made").is_file()


def test_an_error_of_the_system_names_its_file_and_no_number(tmp_path):
    gone = tmp_path / "gone"
    (end,) = run_tasks([f"open({str(gone)!r})"], exec, where="here")
    assert end.error == f"{gone}: no such file or directory"


@pytest.mark.parametrize("where", ["here", "processes"])
def test_of_a_long_error_the_start_and_the_end_are_kept(where):
    long = "raise ValueError('first ' + 'x' * 200_000 + ' last')"  # more than a pipe holds
    end_of = {end.task: end for end in run_tasks([long, "pass"], exec, where=where, workers=2)}
    assert end_of["pass"].status == "finished"
    assert end_of[long].status == "failed"
    assert len(end_of[long].error) < 2100
    assert end_of[long].error.startswith("first xxx")
    assert end_of[long].error.endswith("xxx last")
    assert "characters left out" in end_of[long].error


def test_an_answer_larger_than_a_pipe_holds_is_read_while_its_worker_waits(monkeypatch):
    monkeypatch.setattr(workers, "_answer_tasks", send_much)
    ends = list(run_tasks(["pass"], exec, where="processes", workers=1))
    assert [(end.status, len(end.error)) for end in ends] == [("failed", 200_000)]


def test_a_worker_that_dies_in_the_middle_of_its_answer_is_lost(monkeypatch):
    monkeypatch.setattr(workers, "_answer_tasks", send_half)
    ends = list(run_tasks(["pass"], exec, where="processes", workers=1, tries=1))
    assert [(end.status, end.error) for end in ends] == [("failed", "its worker was lost 1 times")]


def test_no_task_is_started_once_time_is_up():
    tasks = ["import time; time.sleep(0.3)"] * 3
    assert list(run_tasks(tasks, exec, where="here", until=-1)) == []
    ends = list(run_tasks(tasks, exec, where="here", until=0.2))
    assert [end.status for end in ends] == ["finished"]
    assert 0.3 <= ends[0].seconds < 60


def test_processes_work_at_the_same_time_and_the_first_to_end_comes_first(tmp_path):
    slow = (  # until the other is seen to have ended
        f"import os, time\nfor _ in range(6000):\n if os.path.exists({str(tmp_path / 'seen')!r}): break\n"
        " time.sleep(0.01)\nelse: raise ValueError('alone')"
    )
    ends = run_tasks([slow, "pass"], exec, where="processes", workers=2)
    first = next(ends)
    (tmp_path / "seen").touch()
    assert [(end.task, end.status) for end in (first, *ends)] == [
        ("pass", "finished"),
        (slow, "finished"),
    ]


def test_a_process_takes_the_next_task_unless_one_failed_in_it(tmp_path):
    tasks = [leave(tmp_path / name, "str(os.getpid())", first="import os") for name in "abc"]
    ends = run_tasks([*tasks[:2], "1 / 0", tasks[2]], exec, where="processes", workers=1)
    assert [end.status for end in ends] == ["finished", "finished", "failed", "finished"]
    a, b, c = ((tmp_path / name).read_text() for name in "abc")
    assert a == b != c
    assert not any(Path("/proc", number).exists() for number in (a, c))  # none is left


def test_the_task_of_a_lost_worker_is_started_next(tmp_path):
    mark = tmp_path / "mark"
    once = f"import os\nif not os.path.exists({str(mark)!r}):\n open({str(mark)!r}, 'w').close()\n {DIE}"
    ends = list(run_tasks([once, "pass"], exec, where="processes", workers=1))
    assert [(end.task == once, end.status) for end in ends] == [
        (True, "lost"),
        (True, "finished"),
        (False, "finished"),
    ]


def test_a_worker_lost_every_time_is_a_failure_of_its_task_alone():
    ends = list(run_tasks([DIE, "pass"], exec, where="processes", workers=1, tries=2))
    assert [(end.status, end.error) for end in ends] == [
        ("lost", ""),
        ("failed", "its worker was lost 2 times"),
        ("finished", ""),
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_on_ray_a_task_takes_a_gpu_where_there_are_some_unless_told_not_to(
    tmp_path, monkeypatch, start_ray
):
    ray = pytest.importorskip("ray")
    monkeypatch.delenv(
        "CUDA_VISIBLE_DEVICES"
    )  # by which the tests hide a GPU, and which Ray would count
    quiet = {"include_dashboard": False, "log_to_driver": False, "configure_logging": False}
    start_ray(lambda: ray.init("local", num_cpus=2, num_gpus=2, **quiet))
    monkeypatch.chdir(tmp_path)  # a relative path is ours, not one of where Ray was begun
    try:
        for device, gpus in ((None, 1), ("cuda", 1), ("cpu", 0)):
            task = leave(Path("gpus"), "str(len(ray.get_gpu_ids()))", first="import ray")
            assert [end.status for end in run_tasks([task], exec, where="ray", device=device)] == [
                "finished"
            ]
            assert (tmp_path / "gpus").read_text() == str(gpus)
        unknown: list[Any] = [CannotBeRead()]
        ends = list(run_tasks(unknown, exec, where="ray"))
        assert [(end.status, end.error) for end in ends] == [
            ("failed", "ImportError: no such thing here")
        ]
        ends = list(
            run_tasks([DIE, "raise TypeError('a bug')"], exec, where="ray", workers=1, tries=2)
        )
        assert [(end.status, end.error) for end in ends] == [
            ("lost", ""),
            ("failed", "its worker was lost 2 times"),
            ("failed", "TypeError: a bug"),
        ]
    finally:
        ray.shutdown()
