"""Each fuzzer of model files for a few seconds: documented errors and right results only."""

import importlib

import pytest

EXECUTIONS = {
    "safetensors": 300,
    "state_dict": 40,
    "onnx": 60,
    "keras": 60,
    "mlx": 100,
    "undo": 150,
    "run_folder": 60,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXECUTIONS)
def test_damaged_files_are_read_rightly_or_refused_in_one_line(name):
    fuzzer = importlib.import_module(f"bench.trust.fuzz_{name}")
    summary = fuzzer.run(executions=EXECUTIONS[name], seed=7, seconds=5)
    assert summary["executions"]
    assert summary["wrong"] == {}, summary


@pytest.mark.slow
def test_the_fuzzer_of_run_folders_reads_adjusted_models_too(monkeypatch):
    fuzzer = importlib.import_module("bench.trust.fuzz_run_folder")
    loaded = []
    monkeypatch.setattr(fuzzer, "load", lambda path: loaded.append(path.name))
    fuzzer.run(executions=60, seed=7)
    assert {name.split("-")[0].split(".")[0] for name in loaded} == {"model", "adjusted"}
