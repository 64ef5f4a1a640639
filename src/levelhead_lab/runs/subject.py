"""The page of a run, or of its snapshot: as the subject of a report."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from levelhead.core.class_labels import as_positions
from levelhead.core.rules import DEFAULT, Rule, find_rule
from levelhead.core.tuned import Tuned
from levelhead.core.unlabelled import tune_unlabelled
from levelhead.report import Subject, of_tuned, with_sha256
from levelhead.support.errors import LevelheadError, in_file
from levelhead.support.warnings import quiet

from ..lab.snapshot import Snapshot
from .evaluate import tune_held_out
from .run_folder import Run


def of_run(folder: Path, *, tuned: Tuned | None = None, rule: str | Rule | None = None) -> Subject:
    """Return the subject of a finished run.

    Args:
        tuned: what is done to its head; chosen, as in `choose`, if None.
        rule: to choose by; the default rule if None.
    """
    run = Run.open(folder)
    made = run.facts
    spec = made.get("spec", made)
    versions = made.get("versions", {})
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
    facts |= with_sha256({"snapshot": folder / "snapshot.safetensors"})
    snapshot, log = run.snapshot, run.log
    with in_file(folder):
        tuned = tuned or choose(snapshot, rule)
        # Its head can take what was chosen unless that needs a bias, which ours are trained without.
        takes = snapshot.head.bias is not None or not tuned.adjustment.adds
        return subject_of(
            snapshot,
            tuned,
            title=folder.name,
            log=log,
            facts=facts,
            files={"run": str(folder)},
            model=str(folder / "model.safetensors") if takes else "",
        )


def of_snapshot(
    path: Path, *, tuned: Tuned | None = None, rule: str | Rule | None = None
) -> Subject:
    """Return the subject of a file that holds a snapshot; tuned and rule as in `of_run`."""
    snapshot = Snapshot.load(path)
    facts = with_sha256({"snapshot": path})
    with in_file(path):
        return subject_of(
            snapshot,
            tuned or choose(snapshot, rule),
            title=path.stem,
            facts=facts,
            files={"snapshot": str(path)},
        )


def choose(snapshot: Snapshot, rule: str | Rule | None = None) -> Tuned:
    """Choose on the held-out samples or, if there are none, on test samples without their labels."""
    if "held-out" in snapshot.features:
        return tune_held_out(snapshot, rule or DEFAULT)
    if "test" not in snapshot.features:
        came = ", ".join(snapshot.features) or "none"
        raise LevelheadError(f"expected a snapshot with a test or held-out split, got {came}")
    with quiet():  # tuned.warnings has them
        return tune_unlabelled(
            snapshot.logits("test"),
            counts=snapshot.counts,
            rule=find_rule(rule or DEFAULT).with_norms(snapshot.head.norms),
            names=snapshot.head.names,
        )


def subject_of(
    snapshot: Snapshot,
    tuned: Tuned,
    *,
    title: str,
    facts: Mapping[str, str],
    files: Mapping[str, str] | None = None,
    log: Sequence[Mapping[str, Any]] = (),
    model: str = "",
) -> Subject:
    """Return the subject of a snapshot, on its test samples or, without them, on those held out."""
    split, measured = "held-out", None
    if "test" in snapshot.features:
        split = measured = "test"
    return of_tuned(
        tuned,
        snapshot.logits(split),
        as_positions(snapshot.labels[split]),
        title=title,
        measured=measured,
        head=snapshot.head,
        log=log,
        facts=facts,
        files=files,
        model=model,
    )
