"""Subjects from files: a run's folder, a snapshot, a tuned.json, or logits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..choice.snapshot import Snapshot
from ..choice.tuned import Tuned
from ..choice.tuned_json import read_choice
from ..core.choices import Kind
from ..core.errors import LevelheadError
from ..core.study import from_the_study
from ..io import arrays, samples_file
from ..io.per_class_file import target_shares
from ..io.safetensors_file import read_header
from ..io.samples_file import read_label_samples
from ..io.text import parse_json
from ..io.text import read as read_text
from ..rules.rule import AUTO, RULES, find_path_rule
from .labels import LabelSubject, of_labels
from .subject import ChoiceRecord, Subject, of_logits, of_snapshot


def of_file(
    path: str | Path,
    *,
    labels: Path | None = None,
    counts_file: Path | None = None,
    names: Sequence[str] | None = None,
    label_column: str | None = None,
    tuned: Path | None = None,
    gamma: float | None = None,
    rule: str | None = None,
    chosen_on: str = "held-out",
    bootstrap: int = 1000,
    title: str | None = None,
    model: str | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Subject | LabelSubject:
    """Return the subject of a run's folder, a snapshot, a tuned.json, or a file of logits.

    Args:
        path: the file or folder.
        labels, counts_file: files of the labels [N] of logits and of the training samples of each class, where the
            logits' file does not hold them; without labels, only the predicted shares are shown.
        names, label_column: class names, and the title of the labels in a table of logits, as in `samples_file.read`.
        tuned: a tuned.json, chosen on other samples than these.
        gamma: a gamma of your own. With neither, gamma is chosen on the held-out samples; logits are taken to be that.
        rule, bootstrap: as in `of_snapshot`; the rule is `auto` if None.
        chosen_on: what the logits' samples are; `test` gets a warning.
        title: what to call it; its file's name if None.
        model: the model's file, for the commands to copy; that of a run is known.
        say: called with a line about what the logits' file holds besides the logits.

    Returns:
        The subject, for `write`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/all.npz", logits=np.eye(3) + 1, labels=np.arange(3), counts=[90, 30, 10])
    ...     of_file(f"{folder}/all.npz", gamma=0.5).title
    'all'
    """
    given = {"title": title, "model": model}
    subject = _open(
        Path(path),
        labels=labels,
        counts_file=counts_file,
        names=names,
        label_column=label_column,
        tuned=tuned,
        gamma=gamma,
        rule=rule,
        chosen_on=chosen_on,
        bootstrap=bootstrap,
        say=say,
    )
    return replace(subject, **{name: value for name, value in given.items() if value is not None})


def _open(
    place: Path,
    *,
    labels: Path | None,
    counts_file: Path | None,
    names: Sequence[str] | None,
    label_column: str | None,
    tuned: Path | None,
    gamma: float | None,
    rule: str | None,
    chosen_on: str,
    bootstrap: int,
    say: Callable[[str], None],
) -> Subject | LabelSubject:
    """Return the subject of a file, by what it holds."""
    if rule is not None:
        find_path_rule(rule)
    if gamma is not None and tuned is not None:
        raise LevelheadError("expected a gamma or a tuned.json, got both; leave one of them out", parameter="gamma")
    choice = None if tuned is None else read_choice(tuned, rule=rule)
    given: dict[str, Any] = {"gamma": gamma, "rule": rule or AUTO, "tuned": choice, "bootstrap": bootstrap}
    apply = {} if tuned is None else {"tuned_file": str(tuned)}
    if place.is_dir():
        return replace(of_run(place, **given), **apply)
    if place.suffix == ".json":
        return of_tuned(place)
    if place.suffix == ".safetensors" and not place.is_file():
        raise FileNotFoundError(f"{place}: no such file; expected a snapshot or logits")
    if place.suffix == ".safetensors" and "levelhead.snapshot" in read_header(place).metadata:
        facts = with_sha256({"snapshot": place})
        subject = of_snapshot(Snapshot.load(place), title=place.stem, facts=facts, **given)
        return replace(subject, files={"snapshot": str(place)}, **apply)
    if not arrays.has_known_suffix(place):
        raise LevelheadError(
            f"{place}: expected a run's folder, a snapshot, a tuned.json, or logits as {', '.join(arrays.FORMATS)}"
        )
    if choice is not None and choice.get("task") == "multilabel":
        given_counts = counts_file or choice.get("counts") or ()
        kind = (choice.get("sources") or {}).get("kind") or "logits"
        subject = _of_label_choice(choice, place, labels, given_counts, kind=kind, title=place.stem)
        return replace(subject, apart=not _is_own(choice, place), **apply)
    if (name := (choice or given)["rule"]) != AUTO and RULES[name].needs_norms:
        raise LevelheadError(
            f"{place}: the rule {name!r} needs the weight norms of a head, and logits have none; give a "
            "run's folder or a snapshot"
        )
    background = ((choice or {}).get("sources") or {}).get("background")
    found = samples_file.read(
        place, labels, counts_file, names=names, label_column=label_column, background=background, say=say
    )
    subject = of_logits(
        found.logits,
        found.labels,
        found.counts,
        names=found.names,
        facts=with_sha256(found.files),
        title=place.stem,
        samples=chosen_on,
        apart=gamma is not None or (choice is not None and not _is_own(choice, place)),
        **given,
    )
    return replace(subject, files=_names(found.files), **apply)


def of_run(folder: Path, **given: Any) -> Subject:
    """Return the subject of a finished run: its snapshot and its log.

    Args:
        folder, given: what `levelhead train` wrote; gamma, rule, tuned and bootstrap, as in `of_snapshot`.

    Returns:
        The subject, for `write`.
    """
    return from_the_study("runs.subject:of_run")(folder, **given)


def of_tuned(path: Path) -> Subject | LabelSubject:
    """Return the subject of a tuned.json on the files it was chosen on, or of the choice alone if it names no files."""
    choice = read_choice(path)
    sources = choice.get("sources")
    if not sources:
        facts = with_sha256({"tuned": path}) | {
            "note": "this file does not name its logits; tune again with this version of levelhead for the whole page"
        }
        counts = np.ones(choice.get("classes") or 2, np.int64)
        return Subject(path.stem, counts, choice, facts=facts, tuned_file=str(path))
    found: dict[str, Any] = {} if "counts" in sources["files"] else {"counts": sources["counts"]}
    for key, name in sources["files"].items():  # relative to the current folder or to that of the tuned.json
        places = [place for place in (Path(name), path.parent / name) if arrays.file_of(place).is_file()]
        if not places:
            raise FileNotFoundError(
                f"{path}: no such file {name}, which holds its {key}; give the logits themselves, "
                "and this file as tuned"
            )
        found[key] = places[0]
        if sources["sha256"][key] != arrays.sha256(places[0]):
            raise LevelheadError(
                f"{path}: gamma was chosen on other {key} than {places[0]} now holds (another sha256); tune again"
            )
    read_as = {"target": sources["target"], "kind": sources["kind"], "background": sources.get("background")}
    subject = of_choice(choice, **found, **read_as, title=path.stem)
    return replace(subject, tuned_file=str(path))


def of_choice(
    tuned: Tuned | ChoiceRecord,
    *,
    logits: Path,
    labels: Path | None = None,
    counts: Path | Sequence[float],
    norms: Path | None = None,
    target: str | None = None,
    kind: Kind = "logits",
    background: int | str | None = None,
    title: str | None = None,
) -> Subject | LabelSubject:
    """Return the subject of a choice, on the files it was made on.

    Args:
        tuned, title: the choice, or its `to_dict()`; the subject's title, the name of the logits' file if None.
        logits, labels, counts, norms: files, or the counts themselves; norms are needed for the rule `tau` alone.
        target, kind: what each class weighs, as `levelhead tune --target` takes it; as in `tune`.
        background: the class that was left alone, as in `tune`.

    Returns:
        The subject, for `write`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "all.npz")
    ...     np.savez(file, logits=np.eye(3) + 1, labels=np.arange(3), counts=[90, 30, 10])
    ...     choice = {"gamma": 0.5, "rule": "rescale", "chosen_on": "held-out"}
    ...     of_choice(choice, logits=file, counts=file).gamma
    0.5
    """
    choice = tuned.to_dict() if isinstance(tuned, Tuned) else tuned
    if choice.get("task") == "multilabel":
        return _of_label_choice(tuned, logits, labels, counts, kind=kind, title=title or logits.stem)
    found = samples_file.read(logits, labels, counts, names=choice.get("names"), background=background)
    subject = of_logits(
        found.logits,
        found.labels,
        found.counts,
        names=found.names,
        facts=with_sha256(found.files),
        target=None if target is None else target_shares(target, found.names, len(found.counts)),
        norms=None if norms is None else arrays.read(norms, wanted="norms"),
        kind=kind,
        tuned=tuned,
        title=title or logits.stem,
        samples=choice["chosen_on"],
    )
    return replace(subject, files=_names(found.files, norms=norms))


def _of_label_choice(
    tuned: Tuned | ChoiceRecord,
    logits: Path,
    labels: Path | None,
    counts: Path | Sequence[float],
    *,
    kind: Kind,
    title: str,
) -> LabelSubject:
    choice = tuned.to_dict() if isinstance(tuned, Tuned) else tuned
    given = counts if isinstance(counts, Path) else None  # others are in the choice
    found = read_label_samples(logits, labels, given, names=choice.get("names"))
    assert found.labels is not None
    facts = with_sha256(found.files)
    subject = of_labels(found.logits, found.labels, tuned=tuned, names=found.names, kind=kind, title=title, facts=facts)
    return replace(subject, files=_names(found.files))


def _is_own(choice: ChoiceRecord, logits: Path) -> bool:
    """Return whether a choice was made on these logits, by their bytes."""
    return choice.get("sources", {}).get("sha256", {}).get("logits") == arrays.sha256(logits)


def is_records(path: str | Path) -> bool:
    """Return whether a path is a folder of the records that `levelhead reproduce` writes, one per network.

    >>> is_records("no-such-folder")
    False
    """
    first = min(Path(path).glob("*.json"), default=None) if Path(path).is_dir() else None
    try:
        record = None if first is None else parse_json(read_text(first))
    except ValueError:
        return False
    return isinstance(record, dict) and {"column", "method", "curve", "counts"} <= record.keys()


def _names(files: Mapping[str, Any], **more: Path | None) -> dict[str, str]:
    """Return the files by what they hold, as commands take them."""
    return {key: str(file) for key, file in {**files, **more}.items() if file is not None}


def with_sha256(files: Mapping[str, str | Path]) -> dict[str, str]:
    return {key: f"{file}, sha256 {arrays.sha256(file)}" for key, file in files.items()}
