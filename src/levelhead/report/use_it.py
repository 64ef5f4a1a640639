"""The code on a page that applies what was chosen, to a model's file and to one in memory."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from ..rules.rule import RULES, Rescale
from .subject import MODEL, TUNED, ChoiceRecord, Subject, counts_in_command, tune_command

UNDO = "    # adjusted.restore() undoes it"


def code_to_use(subject: Subject) -> dict[str, str]:
    """Return `command`, for a model's file, and `python`, for one in memory: both do what was chosen, or are ""."""
    if subject.gamma == 0:  # nothing is to be done
        return {"command": "", "python": ""}
    if subject.fitted:
        return {"command": "", "python": f"# {subject.fitted} does so already\nmodel.predict(X)"}
    if subject.choice["chosen_on"] == "given":
        return {name: text.replace("{gamma}", repr(subject.gamma)) for name, text in code_at_gamma(subject).items()}
    if RULES[subject.choice["rule"]].refuses_kind(subject.choice.get("kind")) is not None:
        return _code_for_scores(subject)
    return {"command": _command(subject), "python": f"import levelhead as lh\n\n{_python(subject)}"}


def _code_for_scores(subject: Subject) -> dict[str, str]:
    """Return the same for what multiplies log-probabilities: no head gives those, so it is the scores that change."""
    tuned = json.dumps(subject.tuned_file or TUNED)
    kind = ', kind="logits"' if subject.kind == "logits" and subject.logits is not None else ""
    return {
        "command": "" if subject.tuned_file else tune_command(subject),
        "python": "from levelhead.hosts.predictor import RescaledPredictor\n\n"
        "# predict_proba is the model as a function of X, which gives what was tuned on\n"
        f"adjusted = RescaledPredictor(predict_proba, tuned={tuned}{kind})\nadjusted.predict(X)",
    }


def code_at_gamma(subject: Subject, rule: str | None = None) -> dict[str, str]:
    """Return the same for a rule of one strength at any gamma, with {gamma} in its place."""
    rule = str(subject.choice["rule"]) if rule is None else rule
    python, more = RULES[rule].code(), ""
    if python.startswith("write("):
        more = "from levelhead.heads.torch import read, write\n"
    else:
        python = f"adjusted = {python}{UNDO}"
    counts = f"counts = {_counts_in_python(subject)}\n" if RULES[rule].follows_counts else ""
    option = "" if rule == Rescale.name else f" --rule {rule}"
    return {
        "command": f"levelhead rescale {shlex.quote(subject.model or MODEL)} --counts {counts_in_command(subject)}"
        f" --gamma {{gamma}}{option} -o {_adjusted(subject.model or MODEL)}",
        "python": f"import levelhead as lh\n{more}\n{counts}{python}",
    }


def codes_of_views(subject: Subject) -> dict[str, dict[str, str]]:
    """Return that for each rule shown, of those that code can apply at any gamma."""
    rules = () if subject.fitted else (view.rule for view in subject.views)
    return {rule: code_at_gamma(subject, rule) for rule in rules if RULES[rule].code()}


def adjust_command(model: str, tuned: str, choice: ChoiceRecord) -> str:
    """Return the command that applies a tuned.json to a model's file, also where the gain is uncertain."""
    model, between = model or MODEL, choice.get("gain_interval")
    doubted = between is not None and between[0] <= 0 and choice.get("floors_met_at_zero") is not False
    more = " --anyway" if doubted else ""
    return f"levelhead adjust {shlex.quote(model)} --tuned {shlex.quote(tuned or TUNED)}{more} -o {_adjusted(model)}"


def label_tune_command(files: Mapping[str, str], choice: ChoiceRecord) -> str:
    """Return the command that tunes several labels per sample on the files of a page."""
    files = files or {"logits": "logits.npy", "labels": "labels.npy", "counts": "counts.json"}
    given = [f"--{what} {shlex.quote(files[what])}" for what in ("logits", "labels", "counts") if what in files]
    metric = choice.get("metric") or "balanced_error"
    own = [] if metric in ("balanced_error", "cost") else [f"--metric {metric}"]
    return " ".join(["levelhead tune --task multilabel", *given, *own, "-o", TUNED])


def _command(subject: Subject) -> str:
    apply = adjust_command(subject.model, subject.tuned_file, subject.choice)
    if subject.tuned_file:
        return apply
    if not subject.files.keys() & {"run", "snapshot"}:
        return f"{tune_command(subject)}\n{apply}"
    if RULES[subject.choice["rule"]].code():
        return code_at_gamma(subject)["command"].replace("{gamma}", repr(subject.gamma))
    return ""


def _python(subject: Subject) -> str:
    choice = subject.choice
    if subject.tuned_file:
        return f"adjusted = lh.adjust_(model, {json.dumps(subject.tuned_file)}){UNDO}"
    rule = "" if len(choice.get("candidates") or ()) > 2 else f', rule="{choice["rule"]}"'
    metric = choice.get("metric") or "balanced_error"
    metric = "" if metric in ("balanced_error", "cost") else f', metric="{metric}"'
    blind, before = choice["chosen_on"] == "unlabelled", f"counts = {_counts_in_python(subject)}\n"
    known, labels, counts, end = "logits", "labels", "counts", ""
    if place := subject.files.get("run") or subject.files.get("snapshot"):
        file = Path(place, "snapshot.safetensors").as_posix() if "run" in subject.files else place
        split = subject.samples if blind else "held-out"
        before, counts = f"snapshot = lh.Snapshot.load({json.dumps(file)})\n", "snapshot.counts"
        known, labels = f'snapshot.logits("{split}")', f'snapshot.labels["{split}"]'
        end = ", norms=snapshot.head.norms" if not rule or RULES[choice["rule"]].needs_norms else ""
    if subject.kind == "probabilities":
        end += ', kind="probabilities"'
    if subject.target is not None:
        end += f", target={subject.target.tolist()}"
    call = f"match_prior({known}, {counts}" if blind else f"tune({known}, {labels}, {counts}"
    note = "" if known != "logits" else "    # those of this page"
    return f"{before}tuned = lh.{call}{rule}{metric}{end}){note}\nadjusted = lh.adjust_(model, tuned){UNDO}"


def _counts_in_python(subject: Subject) -> str:
    return json.dumps(subject.counts.tolist()) if subject.classes <= 20 else "[...]  # training samples of each class"


def _adjusted(model: str) -> str:
    """Return where the adjusted model goes: next to the model, whose folder may have a leveled one already."""
    return shlex.quote(Path(model).with_name(f"adjusted{Path(model).suffix}").as_posix())
