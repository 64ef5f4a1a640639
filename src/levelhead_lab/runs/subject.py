"""The page of a run, or of its snapshot: as the subject of a report.

`levelhead.report` draws pages of subjects and knows nothing of trainings. Here a run's folder
(`of_run`) or a snapshot alone (`of_snapshot`) is made into one: the choice is made if none is given
(`choose`), and shown on the test samples (`subject_of`), which had no part in it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from levelhead.core.class_labels import as_positions
from levelhead.core.rules import DEFAULT, Rule, find_rule
from levelhead.core.tuned import Tuned
from levelhead.core.unlabelled import tune_unlabelled
from levelhead.report import Subject, of_tuned, with_sha256
from levelhead.support.errors import LevelheadError, in_file
from levelhead.support.warnings import quiet

from ..lab.snapshot import Snapshot
from .evaluate import tune_held_out
from .run_folder import EpochRecord, Run


def of_run(folder: Path, *, tuned: Tuned | None = None, rule: str | Rule | None = None) -> Subject:
    """Return the subject of a finished run.

    Args:
        folder: of the run.
        tuned: what is done to its head; chosen, as in `choose`, if None.
        rule: to choose by; the default rule if None.

    Raises:
        FileNotFoundError: if the folder does not hold a run.
        LevelheadError: if the run is not finished, or a file is damaged.
    """
    run = Run.open(folder)
    begun = run.facts
    spec = begun.get("spec", begun)  # or its fields by themselves
    versions = begun.get("versions", {})
    if not isinstance(spec, dict) or not isinstance(versions, dict):
        raise LevelheadError(
            f"{folder / 'spec.json'}: damaged; move the folder away to train again"
        )
    # Where it comes from: what was asked for, by which versions, and the digest of what is shown.
    facts = {}
    for key in ("data", "method", "ratio", "net", "recipe", "seed"):
        if spec.get(key):
            facts[key] = str(spec[key])
    for package, package_version in versions.items():
        facts[f"trained with {package}"] = str(package_version)
    facts |= with_sha256({"snapshot": folder / "snapshot.safetensors"})
    snapshot = run.snapshot
    log = run.log
    with in_file(folder):
        tuned = tuned or choose(snapshot, rule)
        # The page shows a command to adjust the model, if its head can take what was chosen: unless
        # that needs a bias, which ours are trained without.
        model = ""
        if snapshot.head.bias is not None or not tuned.adjustment.adds:
            model = str(folder / "model.safetensors")
        return subject_of(
            snapshot,
            tuned,
            title=folder.name,
            log=log,
            facts=facts,
            files={"run": str(folder)},
            model=model,
        )


def of_snapshot(
    path: Path, *, tuned: Tuned | None = None, rule: str | Rule | None = None
) -> Subject:
    """Return the subject of a file that holds a snapshot, without the folder of its run.

    Args:
        path: of the file.
        tuned, rule: as in `of_run`.

    Raises:
        LevelheadError: if the file is no snapshot, or has no samples to show.
    """
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
    """Choose on the held-out samples or, if there are none, on test samples without their labels.

    Without labels, the adjustment is the one after which the classes are predicted as often as they
    would be in a balanced set (`tune_unlabelled`): weaker, but no test label was looked at.

    Args:
        snapshot: with a split `held-out` or `test`.
        rule: to choose by; the default rule if None.

    Raises:
        LevelheadError: if the snapshot has neither split.
    """
    if "held-out" in snapshot.features:
        return tune_held_out(snapshot, rule or DEFAULT)
    if "test" not in snapshot.features:
        splits = ", ".join(snapshot.features) or "none"
        raise LevelheadError(f"expected a snapshot with a test or held-out split, got {splits}")
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
    log: Sequence[EpochRecord] = (),
    model: str = "",
) -> Subject:
    """Return the subject of a snapshot, on its test samples or, without them, on those held out.

    Args:
        snapshot: with a split `test` or `held-out`.
        tuned: what is done to its head.
        title: of the page.
        facts, files, log, model: as in `Subject`.
    """
    split = "held-out"
    measured = None  # the choice was made on them
    if "test" in snapshot.features:
        split = "test"
        measured = "test"
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
