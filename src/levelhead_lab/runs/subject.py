"""The page of a run: its snapshot and its log as the subject of a report."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from levelhead.report import Subject, of_snapshot, with_sha256
from levelhead.support.errors import LevelheadError, in_file

from .run_folder import Run


def of_run(folder: Path, **given: Any) -> Subject:
    """Return the subject of a finished run; gamma, rule, tuned and bootstrap are as in `of_snapshot`."""
    run = Run.open(folder)
    made = run.facts
    spec, versions = made.get("spec", made), made.get("versions", {})
    if not isinstance(spec, dict) or not isinstance(versions, dict):
        raise LevelheadError(
            f"{folder / 'spec.json'}: damaged; move the folder away to train again"
        )
    facts = {
        key: str(spec[key])
        for key in ("data", "method", "ratio", "net", "recipe", "seed")
        if spec.get(key)
    }
    facts |= {f"trained with {key}": str(value) for key, value in versions.items()}
    snapshot, log = run.snapshot, run.log
    with in_file(folder):
        subject = of_snapshot(
            snapshot,
            title=folder.name,
            log=log,
            model=str(folder / "model.safetensors"),
            facts=facts | with_sha256({"snapshot": folder / "snapshot.safetensors"}),
            **given,
        )
    return replace(subject, files={"run": str(folder)})
