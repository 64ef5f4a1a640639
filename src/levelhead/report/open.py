"""From what a person has on disk to a Subject: a run's folder, a snapshot, tuned.json, or logits."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..io.counts_file import target_shares
from ..io.tuned_json import read_choice
from ..core.adjust import RULES, RuleName
from ..core.errors import LevelheadError, check_choice
from ..core.measure import Kind
from ..gamma.tuned import Tuned
from ..io import arrays, samples
from ..io.snapshot import Snapshot
from ..runs.run_folder import Run
from .subject import Choice, Subject, of_logits, of_snapshot


def of_file(
    path: str | Path, *, labels: Path | None = None, counts_file: Path | None = None, tuned: Path | None = None,
    gamma: float | None = None, rule: RuleName | None = None, chosen_on: str = "held-out", bootstrap: int = 1000,
    say: Callable[[str], None] = lambda _: None,
) -> Subject:
    """The subject of a RUN's folder, a SNAPSHOT, a tuned.json, or a file of LOGITS, whichever it is.

    Args:
        path: which.
        labels: [N] of the logits, if not beside them in their file; without, only predicted shares are shown.
        counts_file: training samples of each class, for logits that have none beside them; the others know theirs.
        tuned: gamma as `levelhead tune -o` wrote it, chosen on other samples than these.
        gamma: or as given; with neither it is chosen on what was held out, which logits are taken to be.
        rule: what gamma does, where nothing else says.
        chosen_on: what the logits' samples are: `test` gets a warning.
        bootstrap: replicates, where gamma is chosen here.
        say: told in a line what was found beside the logits.
    """
    place = Path(path)
    if rule is not None:
        check_choice("rule", rule, RULES)
    if gamma is not None and tuned is not None:
        raise LevelheadError("expected --gamma or --tuned, not both")
    choice = None if tuned is None else read_choice(tuned, rule=rule)
    given: dict[str, Any] = {"gamma": gamma, "rule": rule or "rescale", "tuned": choice, "bootstrap": bootstrap}
    if place.is_dir():
        return of_run(place, **given)
    if place.suffix == ".json":
        return of_tuned(place)
    if place.suffix == ".safetensors" and _is_snapshot(place):
        return of_snapshot(Snapshot.load(place), title=place.stem, facts=_sources({"snapshot": place}), **given)
    if not arrays.is_known(place):
        raise LevelheadError(f"{path}: expected a run's folder, a snapshot, a tuned.json, or logits as "
                         f"{', '.join(arrays.FORMATS)}")
    if (choice or given)["rule"] == "tau":
        raise LevelheadError(f"{path}: rule='tau' needs the weight norms of a head; give a run's folder or a snapshot")
    found = _read(place, labels, counts_file, say=say)
    own = choice is not None and choice.get("sources", {}).get("sha256", {}).get("logits") == arrays.sha256(place)
    return of_logits(**found, title=place.stem, samples=chosen_on,
                     apart=gamma is not None or (choice is not None and not own), **given)


def of_run(folder: Path, **given: Any) -> Subject:
    """Return the subject of a finished run: its snapshot, with its log."""
    run = Run.open(folder)
    made = run.facts
    spec = made.get("spec", made)
    facts = {key: str(spec[key]) for key in ("data", "method", "ratio", "net", "recipe", "seed") if spec.get(key)}
    facts |= {f"trained with {key}": str(value) for key, value in made.get("versions", {}).items()}
    return of_snapshot(run.snapshot, title=folder.name, log=run.log, model=str(folder / "model.safetensors"),
                       facts=facts | _sources({"snapshot": folder / "snapshot.safetensors"}), **given)


def of_tuned(path: Path) -> Subject:
    """What `tune` chose, on the very files it was chosen on; where these are gone, the choice alone."""
    choice = read_choice(path)
    sources = choice.get("sources")
    if not sources:
        facts = _sources({"tuned": path}) | {"note": "written without the names of its logits: choose again with this "
                                             "version of `levelhead tune -o` for the whole page"}
        return Subject(path.stem, np.ones(choice.get("classes") or 2, np.int64), choice, facts=facts)
    found = {key: _locate(path, key, name) for key, name in sources["files"].items()}
    for key, file in found.items():
        if sources["sha256"][key] != arrays.sha256(file):
            raise LevelheadError(f"{path}: its {key}, {file}, is not what gamma was chosen on (another sha256); tune again")
    return of_choice(choice, **found, target=sources["target"], kind=sources["kind"], title=path.stem)


def of_choice(
    tuned: Tuned | Choice, *, logits: Path, labels: Path | None = None, counts: Path, norms: Path | None = None,
    target: str | None = None, kind: Kind = "logits", title: str | None = None,
) -> Subject:
    """What was chosen, on the very files it was chosen on."""
    choice = tuned.to_dict() if isinstance(tuned, Tuned) else tuned
    return of_logits(**_read(logits, labels, counts, target, norms), title=title or logits.stem, tuned=choice,
                     kind=kind, samples=choice["chosen_on"])


def is_records(path: str | Path) -> bool:
    """A folder of what `levelhead reproduce` writes, a record of each network."""
    first = next(iter(sorted(Path(path).glob("*.json"))), None) if Path(path).is_dir() else None
    try:
        record = None if first is None else json.loads(first.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return isinstance(record, dict) and {"column", "method", "curve", "counts"} <= record.keys()


def _read(
    logits: Path, labels: Path | None, counts_file: Path | None, target: str | None = None, norms: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    found = samples.read(logits, labels, counts_file, say=say)
    return {"logits": found.logits, "labels": found.labels, "counts": found.counts, "names": found.names,
            "target": None if target is None else target_shares(target, found.names, len(found.counts)),
            "norms": None if norms is None else arrays.read(norms, wanted="norms"), "facts": _sources(found.files)}


def _is_snapshot(path: Path) -> bool:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        with safe_open(str(path), framework="numpy") as file:
            return "levelhead.snapshot" in (file.metadata() or {})
    except SafetensorError as error:
        raise LevelheadError(f"{path}: not a whole safetensors file ({error})") from None


def _sources(files: Mapping[str, str | Path]) -> dict[str, str]:
    return {key: f"{file}, sha256 {arrays.sha256(file)}" for key, file in files.items()}


def _locate(tuned: Path, key: str, name: str) -> Path:
    """A file as it was named, from here or from where the tuned.json is."""
    for place in (Path(name), tuned.parent / name):
        if arrays.exists(place):
            return place
    raise FileNotFoundError(f"{tuned}: its {key}, {name}, is not there; give the logits themselves: levelhead report "
                            f"LOGITS --labels Y --counts C --tuned {tuned}")
