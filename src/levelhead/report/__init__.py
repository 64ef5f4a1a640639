"""One self-contained HTML page that shows what the adjustment did to a model, for whoever decides whether to ship it.

``write("page.html", [of_logits(logits, labels, counts)])``. A `Subject`, one model on one set of samples, is made by
the `of_` functions, which are here.

- subject: what a page is about, and each rule that it shows with all that it predicts
- verdict, use_it: the verdict in words, commands and code to copy
- page: page.html, page.css and the scripts, and the data that they need
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..choice.samples import kind_of_scores
from ..choice.snapshot import Snapshot
from ..choice.tune import match_prior, tune
from ..choice.tuned import Tuned
from ..choice.tuned_json import read_tuned
from ..core.class_names import names_of_columns
from ..core.counts import Counts, check_labels, resolve, resolve_labels
from ..core.head import Head
from ..core.rules import AUTO, RULES, Rescale, find_path_rule, rule_with
from ..io import arrays, samples_file
from ..io.safetensors_file import read_header
from ..labels.tune_labels import check_label_scores, check_label_table, tune_labels
from ..support.arrays import Array, as_array
from ..support.errors import LevelheadError
from ..support.extras import from_the_study
from ..support.types import Kind
from ..support.warnings import quiet
from .page import PageTable, is_records, write
from .subject import ChoiceRecord, LabelSubject, Subject, label_rows, make_views

__all__ = [
    "LabelSubject",
    "PageTable",
    "Subject",
    "is_records",
    "of_choice",
    "of_file",
    "of_labels",
    "of_logits",
]
__all__ += ["of_run", "of_snapshot", "write"]

LARGEST_GAMMA = 50.0  # at this gamma, a class with half the samples is scaled by 10^15
MAX_RESAMPLED = (
    2_000_000  # samples times replicates: with more than 2,000 samples, fewer replicates are enough
)


def of_snapshot(
    snapshot: Snapshot,
    *,
    title: str = "snapshot",
    gamma: float | None = None,
    rule: str = AUTO,
    tuned: Tuned | ChoiceRecord | None = None,
    log: Sequence[dict[str, Any]] = (),
    facts: dict[str, str] | None = None,
    bootstrap: int = 500,
    model: str = "",
) -> Subject:
    """Return the subject of a training's snapshot, shown on its test split or, without one, on its held-out split.

    Args:
        title, log, facts, model: as in `Subject`.
        gamma: a gamma of your own; or else that of `tuned`; or else one chosen on the held-out split or, without one,
            by making the predicted shares of the samples shown equal, which needs no labels.
        rule: what gamma does, where `tuned` does not say; `auto` chooses one on the held-out split, and is `rescale`
            without labels or with a gamma of your own.
        tuned: what `tune` returned, or its `to_dict()`.
        bootstrap: replicates at most, where gamma is chosen here.
    """
    if (
        shown := next((split for split in ("test", "held-out") if split in snapshot.features), None)
    ) is None:
        came = ", ".join(snapshot.features) or "none"
        expected = "expected a snapshot with a test or held-out split"
        raise LevelheadError(f"{title}: {expected}, got {came}; train with a hold-out")
    head, names = snapshot.head.numpy(), snapshot.head.names
    held_out = (
        (snapshot.logits("held-out"), snapshot.labels["held-out"])
        if "held-out" in snapshot.features
        else None
    )
    if gamma is None and tuned is None and held_out is not None:
        with quiet():  # the page shows the warnings
            by = rule_with(rule, norms=head.norms)
            tuned = tune(*held_out, snapshot.counts, rule=by, names=names, bootstrap=bootstrap)
    known = None if tuned is None else _record(tuned)
    how: dict[str, Any] = {
        "gamma": gamma,
        "rule": rule,
        "tuned": known,
        "norms": head.norms,
        "bootstrap": bootstrap,
    }
    how |= {"samples": shown, "apart": shown == "test" or gamma is not None, "blind": True}
    given: dict[str, Any] = {
        "title": title,
        "names": names,
        "facts": facts,
        "model": model,
        "head": head,
        "log": log,
    }
    held_out = held_out if shown == "test" else None
    return of_logits(
        snapshot.logits(shown),
        snapshot.labels[shown],
        snapshot.counts,
        held_out=held_out,
        **how,
        **given,
    )


def of_logits(
    logits: Array,
    labels: Array | None,
    counts: Counts,
    *,
    title: str = "model",
    gamma: float | None = None,
    rule: str = AUTO,
    tuned: Tuned | ChoiceRecord | None = None,
    names: Sequence[str] | None = None,
    target: Array | None = None,
    norms: Array | None = None,
    kind: Kind = "logits",
    samples: str = "held-out",
    apart: bool = False,
    blind: bool = False,
    bootstrap: int = 500,
    head: Head | None = None,
    log: Sequence[dict[str, Any]] = (),
    held_out: tuple[Array, np.ndarray] | None = None,
    facts: dict[str, str] | None = None,
    model: str = "",
) -> Subject:
    """Return the subject of a model's logits on samples that it was not trained on.

    Args:
        logits, labels: [N, K] and [N]; without labels (None), only the predicted shares are shown.
        title, counts, names, target, head, log, held_out, facts, model: as in `Subject`.
        norms, kind: as in `tune`.
        gamma: a gamma of your own; or else that of `tuned`; or else one chosen on these samples.
        rule, tuned, bootstrap: as in `of_snapshot`.
        samples: what the samples are: `held-out`, `test`; a gamma chosen on `test` gets a warning on top of the page.
        apart, blind: whether these samples had no part in a given choice; whether to choose gamma without labels.

    >>> of_logits(np.eye(3) + 1, [0, 1, 2], [90, 30, 10], title="tiny", gamma=0.5).choice
    {'gamma': 0.5, 'rule': 'rescale', 'chosen_on': 'given'}
    """
    names = names_of_columns(logits, counts) if names is None else names
    logits = as_array(logits)
    n = resolve(counts, logits.shape[1] if logits.ndim == 2 else None, names=names)
    choice: ChoiceRecord | None = None if tuned is None else _record(tuned)
    if gamma is not None:
        choice = {
            "gamma": gamma,
            "rule": Rescale.name if rule == AUTO else rule,
            "chosen_on": "given",
        }
    if choice is not None:
        _check_choice(choice, kind_of_scores(logits, kind), len(n))
        choice = choice | {"gamma": float(choice["gamma"])}
    estimated = (choice or {}).get("prior")  # a target that was estimated is in the choice
    target = (
        estimated.get("target", estimated["shares"]) if target is None and estimated else target
    )
    prior = None if target is None else np.asarray(target, np.float64) / np.sum(target)
    known = None
    if labels is not None:
        found, names = resolve_labels(logits, labels, counts, names)
        known = check_labels(found, len(n))
    if choice is None:
        times = min(bootstrap, MAX_RESAMPLED // len(logits))
        given: dict[str, Any] = {"names": names, "kind": kind, "bootstrap": times}
        with quiet():  # the page shows the warnings
            if known is None or blind:
                one = rule_with(Rescale.name if rule == AUTO else rule, norms=norms)
                tuned = match_prior(logits, n, prior, rule=one, **given)
            else:
                one = rule_with(rule, norms=norms)
                tuned = tune(logits, known, n, rule=one, target=prior, chosen_on=samples, **given)
        choice = tuned.to_dict()
    views = make_views(logits, known, n, choice, norms=norms, kind=kind, target=prior)
    tried = (
        tuned.candidates
        if isinstance(tuned, Tuned) and tuned.metric == "balanced_error" and not apart
        else ()
    )
    shown = {view.rule for view in views}
    return Subject(
        title=title,
        counts=n,
        choice=choice,
        views=views,
        logits=logits,
        samples=samples,
        apart=apart,
        names=names,
        target=prior,
        held_out=held_out,
        head=head,
        log=log,
        facts=facts or {},
        model=model,
        drawn={
            one.rule: one.curve for one in tried if one.curve is not None and one.rule not in shown
        },
        kind=kind,
    )


def of_labels(
    logits: Array,
    labels: Array,
    counts: Counts | None = None,
    *,
    title: str = "model",
    tuned: Tuned | ChoiceRecord | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    samples: str = "held-out",
    apart: bool = False,
    bootstrap: int = 500,
    facts: dict[str, str] | None = None,
    model: str = "",
) -> LabelSubject:
    """Return the subject of a model with several labels per sample.

    Args:
        logits, labels: [N, K] each; labels are 0 and 1.
        counts: training samples that have each label; None counts those given here.
        tuned: what `tune_labels` returned, or its `to_dict()`; chosen on these samples if None.
        title, names, kind, samples, apart, bootstrap, facts, model: as in `of_logits`.
    """
    if tuned is None:
        with quiet():  # the page shows the warnings
            given: dict[str, Any] = {
                "names": names,
                "kind": kind,
                "chosen_on": samples,
                "bootstrap": bootstrap,
            }
            tuned = tune_labels(logits, labels, counts, **given)  # type: ignore[arg-type]
    choice, truth = _record(tuned), check_label_table(labels)
    rows = label_rows(check_label_scores(logits, truth, kind), truth, choice, names)
    return LabelSubject(title, choice, rows, len(truth), apart, facts or {}, {}, model)


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
    bootstrap: int = 500,
    title: str | None = None,
    model: str | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Subject | LabelSubject:
    """Return the subject of a run's folder, a snapshot, a tuned.json, or a file of logits.

    Args:
        labels, counts_file, names, label_column: of logits, as `levelhead report` takes them; without labels, only the
            predicted shares are shown.
        tuned: a tuned.json, chosen on other samples than these.
        gamma: a gamma of your own. With neither, gamma is chosen on the held-out samples; logits are taken to be that.
        rule, bootstrap: as in `of_snapshot`; the rule is `auto` if None.
        chosen_on, title: what the logits' samples are, `test` gets a warning; its file's name if None.
        model, say: the model's file, for the commands to copy; called with what the logits' file holds besides logits.
    """
    place = Path(path)
    if rule is not None:
        find_path_rule(rule)
    if gamma is not None and tuned is not None:
        raise LevelheadError(
            "expected a gamma or a tuned.json, got both; leave one of them out", parameter="gamma"
        )
    choice = None if tuned is None else read_tuned(tuned, rule=rule).to_dict()
    sources = (choice or {}).get("sources") or {}
    own = sources.get("sha256", {}).get("logits")  # the bytes of the logits that it was chosen on
    given: dict[str, Any] = {
        "gamma": gamma,
        "rule": rule or AUTO,
        "tuned": choice,
        "bootstrap": bootstrap,
    }
    more = {"tuned_file": None if tuned is None else str(tuned), "title": title, "model": model}
    if place.is_dir():
        subject = of_run(place, **given)
    elif place.suffix == ".json":
        subject, more["tuned_file"] = _of_tuned(place), str(place)
    elif _is_snapshot(place):
        subject = of_snapshot(
            Snapshot.load(place), title=place.stem, facts=with_sha256({"snapshot": place}), **given
        )
        subject = replace(subject, files={"snapshot": str(place)})
    elif not arrays.has_known_suffix(place):
        known = (
            f"a run's folder, a snapshot, a tuned.json, or logits as {', '.join(arrays.FORMATS)}"
        )
        raise LevelheadError(f"{place}: expected {known}")
    elif choice is not None and choice.get("task") == "multilabel":
        n = counts_file or choice.get("counts") or ()
        subject = of_choice(
            choice, logits=place, labels=labels, counts=n, kind=sources.get("kind") or "logits"
        )
        subject = replace(subject, apart=own != arrays.sha256(place))
    else:
        if (name := (choice or given)["rule"]) != AUTO and RULES[name].needs_norms:
            needs = f"the rule {name!r} needs the weight norms of a head, and logits have none"
            raise LevelheadError(f"{place}: {needs}; give a run's folder or a snapshot")
        target, background = sources.get("target"), sources.get("background")
        how: dict[str, Any] = {
            "names": names,
            "label_column": label_column,
            "background": background,
            "say": say,
        }
        found = samples_file.read(place, labels, counts_file, **how)
        apart = gamma is not None or (choice is not None and own != arrays.sha256(place))
        shares = arrays.target_shares(target, found.names, len(found.counts))
        subject = _of_samples(
            found, title=place.stem, samples=chosen_on, apart=apart, target=shares, **given
        )
    return replace(subject, **{name: value for name, value in more.items() if value is not None})


def of_run(folder: Path, **given: Any) -> Subject:
    """Return the subject of a run that `levelhead train` wrote: its snapshot and log, with options of `of_snapshot`."""
    return from_the_study("runs.subject:of_run")(folder, **given)


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
        target, kind, background: as `levelhead tune` takes them.
    """
    choice, title = _record(tuned), title or logits.stem
    if choice.get("task") == "multilabel":
        given = counts if isinstance(counts, Path) else None  # others are in the choice
        found = samples_file.read_label_samples(logits, labels, given, names=choice.get("names"))
        assert found.labels is not None
        subject = of_labels(
            found.logits, found.labels, tuned=tuned, names=found.names, kind=kind, title=title
        )
        return replace(subject, **_places(found.files))
    found = samples_file.read(
        logits, labels, counts, names=choice.get("names"), background=background
    )
    shares = arrays.target_shares(target, found.names, len(found.counts))
    known = None if norms is None else arrays.read(norms, wanted="norms")
    on = choice["chosen_on"]
    subject = _of_samples(
        found, target=shares, norms=known, kind=kind, tuned=tuned, title=title, samples=on
    )
    return (
        subject if norms is None else replace(subject, files=subject.files | {"norms": str(norms)})
    )


def _of_tuned(path: Path) -> Subject | LabelSubject:
    """Return the subject of a tuned.json on the files it was chosen on, or of the choice alone if it names no files."""
    choice = read_tuned(path).to_dict()
    if not (sources := choice.get("sources")):
        note = "this file does not name its logits; tune again with this version of levelhead for the whole page"
        counts = np.ones(choice.get("classes") or 2, np.int64)
        return Subject(
            path.stem, counts, choice, facts=with_sha256({"tuned": path}) | {"note": note}
        )
    found: dict[str, Any] = {} if "counts" in sources["files"] else {"counts": sources["counts"]}
    for key, name in sources[
        "files"
    ].items():  # relative to the current folder or to that of the tuned.json
        places = [
            place for place in (Path(name), path.parent / name) if arrays.file_of(place).is_file()
        ]
        if not places:
            what = f"which holds its {key}; give the logits themselves, and this file as tuned"
            raise FileNotFoundError(f"{path}: no such file {name}, {what}")
        found[key] = places[0]
        if sources["sha256"][key] != arrays.sha256(places[0]):
            now = f"than {places[0]} now holds (another sha256); tune again"
            raise LevelheadError(f"{path}: gamma was chosen on other {key} {now}")
    read_as = {
        "target": sources["target"],
        "kind": sources["kind"],
        "background": sources.get("background"),
    }
    return of_choice(choice, **found, **read_as, title=path.stem)


def _of_samples(found: samples_file.SamplesRead, **given: Any) -> Subject:
    subject = of_logits(found.logits, found.labels, found.counts, names=found.names, **given)
    return replace(subject, **_places(found.files))


def _places(files: Mapping[str, str | Path]) -> dict[str, dict[str, str]]:
    """Return where a subject comes from: its facts, and its files as commands take them."""
    return {"facts": with_sha256(files), "files": {key: str(file) for key, file in files.items()}}


def with_sha256(files: Mapping[str, str | Path]) -> dict[str, str]:
    return {key: f"{file}, sha256 {arrays.sha256(file)}" for key, file in files.items()}


def _is_snapshot(place: Path) -> bool:
    if place.suffix != ".safetensors":
        return False
    if not place.is_file():
        raise FileNotFoundError(f"{place}: no such file; expected a snapshot or logits")
    return "levelhead.snapshot" in read_header(place).metadata


def _check_choice(choice: ChoiceRecord, kind: str, classes: int) -> None:
    """Check that a strength can be shown, and on scores of this kind, of so many classes."""
    rule, gamma, given = RULES[choice["rule"]], choice["gamma"], choice["chosen_on"] == "given"
    if not 0 <= gamma <= (np.inf if rule.grows and not given else LARGEST_GAMMA) or not np.isfinite(
        gamma
    ):
        bounds = f"expected a gamma from 0 to {LARGEST_GAMMA:g}, got {gamma:g}"
        raise LevelheadError(bounds, parameter="gamma" if given else "tuned")
    if choice.get("classes") not in (None, 0, classes):
        raise LevelheadError(
            f"gamma was chosen on logits of {choice['classes']} classes, but these have {classes}"
        )
    chosen = choice.get("kind")  # an older choice may not say it
    if rule.multiplies and chosen not in (None, kind):
        other = (
            f"the rule {choice['rule']} was chosen on {chosen}, but these are {kind}; show those"
        )
        raise LevelheadError(other, parameter="tuned")


def _record(tuned: Tuned | ChoiceRecord) -> ChoiceRecord:
    return tuned.to_dict() if isinstance(tuned, Tuned) else tuned
