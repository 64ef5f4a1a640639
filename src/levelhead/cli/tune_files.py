"""`tune` from files to a file: what the command does."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..core import atomic, counts
from ..core.adjust import RULES, RuleName
from ..core.errors import LevelheadError
from ..core.measure import Kind
from ..core.warnings import LevelheadWarning
from ..gamma.tune import Criterion, Progress, match_prior, tune
from ..gamma.tuned import Tuned
from ..io import arrays, text
from ..io.samples import Samples
from ..show.plot import check_picture

LONG = 20_000_000  # numbers in the logits: below, no stage takes time worth a bar


def tune_files(
    samples: Samples, *, unlabelled: str | Path | None = None, rule: RuleName = "rescale",
    criterion: Criterion = "guided", target: str | None = None, reach: float = 2.0, norms: str | Path | None = None,
    training: str | Path | None = None, kind: Kind = "logits", chosen_on: str = "held-out", bootstrap: int = 1000,
    seed: int = 0,
) -> Tuned:
    """`tune` on files; without labels, `match_prior`. Warnings are in the result and are not raised.

    Args:
        samples: logits, counts and perhaps labels.
        unlabelled, norms, training: what `arrays.read` reads; FILE:KEY names one array of several.
        target: K shares with commas between them, or a file of them like one of counts.
        reach: the range of gamma ends there.
        rule, criterion, kind, chosen_on, bootstrap, seed: as in `tune`.
    """
    if seed < 0:
        raise LevelheadError(f"expected a seed of 0 or more, got {seed}")
    if not 0 < reach < np.inf:
        raise LevelheadError(f"expected --max, the largest gamma tried, above 0 and finite, got {reach:g}")
    scores, n, names = samples.logits, samples.counts, samples.names
    prior = None if target is None else target_shares(target, names, len(n))
    lengths = None if norms is None else arrays.read(norms, wanted="norms")
    with warnings.catch_warnings(), _bar(scores) as progress:
        warnings.simplefilter("ignore", LevelheadWarning)
        if samples.labels is None:
            if unlabelled is not None or training is not None:
                raise LevelheadError("without --labels the --logits are the unlabelled ones; leave the other file out")
            if criterion != "guided":
                raise LevelheadError(f"without --labels there are only shares to go by; leave out --criterion {criterion}, "
                                 "or give --labels")
            return match_prior(scores, n, prior, rule=rule, range=(0.0, reach), bootstrap=bootstrap, rng=seed,
                               norms=lengths, names=names, kind=kind, progress=progress)
        return tune(
            scores, samples.labels, n, criterion=criterion, rule=rule,
            unlabelled=None if unlabelled is None else arrays.read(unlabelled), target=prior, range=(0.0, reach),
            chosen_on=chosen_on, bootstrap=bootstrap, rng=seed, norms=lengths, names=names, kind=kind,
            training=None if training is None else arrays.read(training), progress=progress,
        )


def check_new(
    out: Path | None, plot: Path | None, page: Path | None = None, *, force: bool, inputs: Sequence[Path | None] = ()
) -> None:
    """Before any work: that what will be written can be, and takes the place of nothing that is read."""
    given = [path for path in (out, plot, page) if path is not None]
    read = [arrays.file_of(source) for source in inputs if source is not None]
    for path in given:
        atomic.check_plain(path)
        if path.exists() and any(file.exists() and path.samefile(file) for file in read):
            raise LevelheadError(f"{path} is an input, which is never overwritten; give another name")
        if os.path.lexists(path) and not force:
            raise FileExistsError(f"{path} exists; pass --force to replace it")
    for path in (out, plot):
        if path is not None and not path.parent.is_dir():
            raise LevelheadError(f"{path.parent}: no such folder to write {path.name} into")
    if len({path.resolve() for path in given}) < len(given):
        raise LevelheadError(f"{given[0]}: expected a file of its own for each of --out, --plot and --report")
    if page is not None and (page.suffix.lower() not in (".html", ".htm") or not page.parent.is_dir()):
        raise LevelheadError(f"{page}: expected a page as .html, in a folder that exists")
    if plot is not None:
        check_picture(plot)


def save(tuned: Tuned, path: str | Path, sources: dict[str, Any] | None = None) -> None:
    """Write what `levelhead rescale --tuned` reads, atomically; with its sources, `levelhead report` shows them too."""
    found = tuned.to_dict() | ({} if sources is None else {"sources": sources})
    atomic.write(path, json.dumps(found, indent=2) + "\n")


def read_choice(path: str | Path, *, rule: str | None = None) -> dict[str, Any]:
    """What `save` wrote, looked at closely enough to be used: its `gamma`, `rule` and `chosen_on`.

    Args:
        path: the file.
        rule: a rule that was asked for beside it, which must be its own.
    """
    arrays.check_file(Path(path), "what `levelhead tune -o` writes")
    try:
        choice = json.loads(text.read(path))
        flaw = _flaw(choice)
    except json.JSONDecodeError:
        flaw = "it is no JSON"
    except ValueError as error:
        flaw = str(error)
    if flaw is not None:
        raise LevelheadError(f"{path}: not what `levelhead tune -o` writes ({flaw})")
    if rule not in (None, choice["rule"]):
        raise LevelheadError(f"{path}: gamma was chosen for rule={choice['rule']!r}, not {rule!r}; leave out one of them")
    return choice


def _flaw(choice: Any) -> str | None:
    """What is wrong with a choice, if anything is."""
    if not isinstance(choice, dict):
        return "it is no JSON object"
    absent = [key for key in ("gamma", "rule", "chosen_on") if key not in choice]
    if absent:
        return f"it has no {absent[0]}"
    gamma = choice["gamma"]
    if not (_finite(gamma) and choice["rule"] in RULES and isinstance(choice["chosen_on"], str)):
        return f"gamma {gamma}, rule {choice['rule']!r}"
    if choice.get("level") is not None and not (_finite(choice["level"]) and 0 < choice["level"] < 1):
        return f"level {choice['level']!r}"
    for key in ("interval", "gain_interval"):
        between = choice.get(key)
        if between is not None and not (isinstance(between, list) and len(between) == 2 and all(map(_finite, between))):
            return f"{key} {between!r}"
    if choice.get("gain") is not None and not _finite(choice["gain"]):
        return f"gain {choice['gain']!r}"
    for key in ("n", "classes"):
        if not (choice.get(key) is None or (isinstance(choice[key], int) and choice[key] > 0)):
            return f"{key} {choice[key]!r}"
    return "its sources are damaged" if choice.get("sources") and not _sound(choice["sources"]) else None


def _finite(value: Any) -> bool:
    """Whether it is a number that a float can be; JSON has integers of any length."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _sound(sources: Any) -> bool:
    """Whether these may be what the function below made."""
    if not isinstance(sources, dict) or not {"files", "sha256", "kind", "target"} <= sources.keys():
        return False
    files, sums = sources["files"], sources["sha256"]
    return (isinstance(files, dict) and isinstance(sums, dict) and {"logits", "counts"} <= files.keys() == sums.keys()
            and files.keys() <= {"logits", "labels", "counts", "norms"}
            and all(isinstance(name, str) for name in files.values()) and _counted(sources.get("counts")))


def _counted(n: Any) -> bool:
    return n is None or (isinstance(n, list) and len(n) > 0 and all(_finite(one) and one > 0 for one in n))


def sources(n: np.ndarray, kind: Kind, target: str | None, **given: str | Path | None) -> dict[str, Any]:
    """What a choice was made on: files by what they hold, their sha256, how to read them; and the counts themselves."""
    named = {key: str(source) for key, source in given.items() if source is not None}
    return {"files": named, "sha256": {key: arrays.sha256(source) for key, source in named.items()}, "kind": kind,
            "target": target, "counts": n.tolist()}


def same_counts(choice: Mapping[str, Any], n: np.ndarray) -> bool:
    """Whether gamma was chosen with these counts, or with others of the same proportions; True where it is not said."""
    chosen = (choice.get("sources") or {}).get("counts")
    return chosen is None or (len(chosen) == len(n) and np.allclose(np.array(chosen) / max(chosen), n / n.max()))


def target_shares(given: str, names: Sequence[str] | None, size: int) -> np.ndarray:
    """[K] shares, from "0.5,0.3,0.2" or from a file that holds a list or {class: share}."""
    if Path(given).suffix.lower() in (".json", ".csv", ".npy", ".txt"):
        shares = counts.read(given, wanted="shares")
    else:
        shares = given.split(",")
    if isinstance(shares, dict):
        found = {str(key): share for key, share in shares.items()}
        order = list(names or map(str, range(size)))
        if sorted(found) != sorted(order):
            raise LevelheadError(f"{given}: expected the shares of {', '.join(order[:8])}, got those of "
                             f"{', '.join(list(found)[:8])}")
        shares = [found[name] for name in order]
    try:
        return np.array([float(share) for share in shares])
    except (TypeError, ValueError):
        raise LevelheadError(f"expected --target as {size} shares with commas between them, or a file of them, got "
                         f"{given!r}") from None


@contextmanager
def _bar(logits: np.ndarray) -> Iterator[Progress | None]:
    """A progress bar on stderr, if that is a terminal and the input is long."""
    if logits.size < LONG or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks = {}

        def update(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done)

        yield update
