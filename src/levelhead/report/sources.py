"""Subjects from files: a tuned.json, logits, a run's folder or a snapshot.

`of_file` tells what a path is. Logits are read here, and the choice is made on them unless one is
given; a tuned.json names the files it was chosen on, which are read again if they are unchanged;
a run's folder and a snapshot are read by `levelhead_lab`, which wrote them.

A file is known by its bytes: a tuned.json has the sha256 of what it was chosen on. So the page never
shows a choice on samples that only have the same name, and a file of logits that is the choice's own
is not taken for new samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..core.rules import DEFAULT, Rule
from ..core.tune import tune
from ..core.tuned import Tuned, read_tuned
from ..core.unlabelled import tune_unlabelled
from ..io import arrays, samples_file
from ..io.safetensors_file import read_header
from ..support.errors import LevelheadError
from ..support.extras import from_the_study
from ..support.warnings import quiet
from .subject import Subject, of_tuned, with_sha256


def of_file(
    path: str | Path,
    *,
    labels: Path | None = None,
    counts_file: Path | None = None,
    names: Sequence[str] | None = None,
    label_column: str | None = None,
    tuned: Path | None = None,
    metric: str | None = None,
    rule: str | Rule | None = None,
    chosen_on: str = "held-out",
    title: str | None = None,
    model: str | Path | None = None,
    say: Callable[[str], object] = str,
) -> Subject:
    """Return the subject of a run's folder, a snapshot, a tuned.json, or a file of logits.

    Args:
        path: of that folder or file.
        labels, counts_file, names, label_column: of logits, as `levelhead report` takes them;
            without labels, it is chosen without them, and only the predicted shares are shown.
        tuned: a tuned.json, to be shown on these samples. Without one, it is chosen on them.
        metric, rule: of the choice, where it is made here; those of `tune` if None.
        chosen_on: what the samples of a file of logits are; `test` gets a warning.
        title: instead of the file's name.
        model: the model's file, for the commands to copy.
        say: called with what the logits' file holds besides logits.

    Raises:
        LevelheadError: a file of no known kind, or what does not go together: a metric or a rule beside
            a choice that is made already, or two choices.
        OSError: a file that cannot be read.

    >>> from tempfile import TemporaryDirectory
    >>> from levelhead.core.adjustment import Adjustment
    >>> from levelhead.core.tuned import Tuned
    >>> tuned = Tuned("shift", Adjustment.adding([0.0, 1.5]), evidence=None, strength=1.0)
    >>> with TemporaryDirectory() as folder:
    ...     tuned.save(f"{folder}/tuned.json")
    ...     of_file(f"{folder}/tuned.json", title="animals").tuned.rule
    'shift'
    """
    # A choice comes in a file of its own, or is the input itself; then there is nothing left to choose.
    place = Path(path)
    choice = None
    if tuned is not None:
        if place.suffix == ".json":
            raise LevelheadError(f"{place} is a choice already; leave it out", parameter="tuned")
        choice = read_tuned(tuned)
    if choice is not None or place.suffix == ".json":
        for parameter, value in (("rule", rule), ("metric", metric)):
            if value is not None:
                reason = "the choice is made already, in a tuned.json; leave it out"
                raise LevelheadError(reason, parameter=parameter)
    # What the input is: by its being a folder, by its suffix, by the header of a safetensors file.
    if place.is_dir():
        subject = of_run(place, tuned=choice, rule=rule)
    elif place.suffix == ".json":
        subject = _of_tuned_file(place)
    elif _is_snapshot(place):
        of_snapshot = from_the_study(
            "runs.subject:of_snapshot", needed_by=f"a page of the snapshot {place}"
        )
        subject = of_snapshot(place, tuned=choice, rule=rule)
    elif not arrays.has_known_suffix(place):
        formats = ", ".join(arrays.FORMATS)
        expected = f"a run's folder, a snapshot, a tuned.json, or logits as {formats}"
        raise LevelheadError(f"{place}: expected {expected}")
    else:
        read = _read(place, choice, labels, counts_file, names, label_column, say)
        subject = _of_samples(read, choice, chosen_on, metric=metric, rule=rule)
        subject = replace(subject, title=place.stem)
    if tuned is not None:
        subject = replace(subject, tuned_file=str(tuned))
    if title is not None:
        subject = replace(subject, title=title)
    if model is not None:
        subject = replace(subject, model=str(model))
    return subject


def are_samples(path: str | Path) -> bool:
    """Return whether a path is a file of logits: only those take labels, counts and names beside them."""
    place = Path(path)
    return not place.is_dir() and place.suffix != ".json" and not _is_snapshot(place)


def of_run(folder: Path, *, tuned: Tuned | None = None, rule: str | Rule | None = None) -> Subject:
    """Return the subject of a run that `levelhead train` wrote: its snapshot and its log.

    Args:
        folder: of the run.
        tuned: a choice to show; if None, one is made on the run's held-out samples.
        rule: of that choice.

    Raises:
        ModuleNotFoundError: `levelhead_lab` is not installed.

    Example:
        ``write("page.html", [of_run(Path("runs/wvn"))])``, of a folder that `levelhead train` named.
    """
    of_run_folder = from_the_study("runs.subject:of_run", needed_by=f"a page of the run {folder}")
    return of_run_folder(folder, tuned=tuned, rule=rule)


def _read(
    place: Path,
    tuned: Tuned | None,
    labels: Path | None,
    counts_file: Path | None,
    names: Sequence[str] | None,
    label_column: str | None,
    say: Callable[[str], object],
) -> samples_file.SamplesRead:
    """Read the samples of a file of logits, with the classes and the background of a choice.

    Args:
        place: the file of the logits.
        tuned: says whether labels are one class or several, and what the classes are called if `names` does not.
        labels, counts_file, names, label_column, say: as in `of_file`.
    """
    background = None
    if tuned is not None:
        names = names or tuned.names
        if tuned.multilabel:
            return samples_file.read_label_samples(place, labels, counts_file, names=names, say=say)
        background = tuned.background
    return samples_file.read(
        place,
        labels,
        counts_file,
        names=names,
        label_column=label_column,
        background=background,
        say=say,
    )


def _of_samples(
    read: samples_file.SamplesRead,
    tuned: Tuned | None,
    chosen_on: str,
    *,
    metric: str | None,
    rule: str | Rule | None,
) -> Subject:
    """Return the subject of samples, by the choice given or by one that is made on them.

    Samples other than those that a choice was made on are `measured`: it is judged on them, and so is a
    choice without labels on its own samples, once they have some. Without labels it cannot be judged, and
    what it was worth elsewhere is not shown beside them.
    """
    measured = None
    if tuned is None:
        with quiet():  # the page shows the warnings
            if read.labels is None:
                tuned = tune_unlabelled(
                    read.logits,
                    counts=read.counts,
                    rule=rule or DEFAULT,
                    names=read.names,
                )
            else:
                tuned = tune(
                    read.logits,
                    read.labels,
                    read.counts,
                    metric=metric or "balanced_error",
                    rule=rule or DEFAULT,
                    names=read.names,
                    chosen_on=chosen_on,
                )
    elif not _are_its_own(tuned, read.files):
        if read.labels is None:
            tuned = replace(tuned, evidence=None)
        else:
            measured = chosen_on
    return of_tuned(
        tuned,
        read.logits,
        read.labels,
        measured=measured,
        files=read.files,
    )


def _are_its_own(tuned: Tuned, files: Mapping[str, str | Path]) -> bool:
    """Return whether samples are those that a choice was made on, by the bytes of their files.

    Args:
        tuned: the choice.
        files: where logits and labels, if there are any, were found.

    Raises:
        LevelheadError: the logits are its own, the labels are others: it cannot be judged honestly on samples
            that it was fitted on.
    """
    sha256 = (tuned.sources or {}).get("sha256", {})
    if "logits" not in sha256 or sha256["logits"] != arrays.sha256(files["logits"]):
        return False
    if "labels" not in files:
        return True
    if tuned.evidence is None:
        return False
    if sha256.get("labels") != arrays.sha256(files["labels"]):
        other = (
            f"{files['labels']}: not the labels that the choice was made with, for the same logits"
        )
        raise LevelheadError(f"{other}; choose again with these", parameter="labels")
    return True


def _of_tuned_file(path: Path) -> Subject:
    """Return the subject of a tuned.json, with the samples it was chosen on where these are found.

    Without them, the page has the tables that the file brings, and says of each file why it is not
    here: moved, or changed since.
    """
    tuned = read_tuned(path)
    facts = with_sha256({"tuned": path})
    sources = tuned.sources or {"files": {}, "sha256": {}}
    files: dict[str, Path] = {}  # those that are there, unchanged
    for role, name in sources["files"].items():
        sha256 = sources["sha256"][role]
        facts[role] = f"{name}, sha256 {sha256}"
        file = _find_source(name, path.parent)
        if file is None:
            facts[role] += "; not found here, so charts that need it are left out"
        elif arrays.sha256(file) != sha256:
            facts[role] += "; it has changed since, so charts that need it are left out"
        else:
            files[role] = file
    # Logits without the labels they were chosen with would show another choice: both, or neither.
    needed = {"logits", "labels"} & sources["files"].keys()
    if "logits" not in files or not needed <= files.keys():
        return of_tuned(tuned, title=path.stem, facts=facts, tuned_file=str(path))
    read = _read(files["logits"], tuned, files.get("labels"), None, None, None, str)
    features = None
    shown_files = dict(read.files)
    if "features" in files:
        features = arrays.read(files["features"], wanted="features")
        shown_files["features"] = files["features"]
    return of_tuned(
        tuned,
        read.logits,
        read.labels,
        features=features,
        title=path.stem,
        facts=facts,
        files=shown_files,
        tuned_file=str(path),
    )


def _find_source(name: str, folder: Path) -> Path | None:
    """Return where a file is: it is named from where the command ran, or lies beside the tuned.json.

    The second is for a folder that was moved or sent as a whole. None if it is in neither place.
    """
    for place in (Path(name), folder / name):
        if arrays.file_of(place).is_file():
            return place
    return None


def _is_snapshot(place: Path) -> bool:
    """Return whether a file is a snapshot of the study, by what its header says.

    Logits come as .safetensors, too, so the suffix does not tell.
    """
    if place.suffix != ".safetensors":
        return False
    if not place.is_file():
        raise FileNotFoundError(f"{place}: no such file; expected a snapshot or logits")
    return "levelhead.snapshot" in read_header(place).metadata
