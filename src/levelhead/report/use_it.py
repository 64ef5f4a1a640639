"""The commands and the code on a page: they tune again, or apply what was chosen to a model's file or in memory."""

import json
import shlex
from pathlib import Path

from ..core.rules import RULES, Auto
from .subject import LabelSubject, Subject

MODEL = "model.safetensors"  # where the model's file is not known
TUNED = "tuned.json"  # the same for the choice
OF_A_RUN = ("run", "snapshot")  # files of a subject that hold all there is
UNDO = "    # adjusted.restore() undoes it"


def code_to_use(subject: Subject) -> dict[str, str]:
    """Return `command`, for a model's file, and `python`, for one in memory: both do what was chosen, or are ""."""
    if subject.gamma == 0:  # nothing is to be done
        return {"command": "", "python": ""}
    if subject.fitted:
        return {"command": "", "python": f"# {subject.fitted} does so already\nmodel.predict(X)"}
    if subject.choice["chosen_on"] == "given":
        return {
            name: text.replace("{gamma}", repr(subject.gamma))
            for name, text in code_at_gamma(subject).items()
        }
    if RULES[subject.choice["rule"]].refuses_kind(subject.choice.get("kind")) is not None:
        # it multiplies log-probabilities: no head gives those, so it is the scores that change
        tuned = json.dumps(subject.tuned_file or TUNED)
        kind = ', kind="logits"' if subject.kind == "logits" and subject.logits is not None else ""
        return {
            "command": "" if subject.tuned_file else tune_command(subject),
            "python": "from levelhead.hosts.predictor import RescaledPredictor\n\n"
            "# predict_proba is the model as a function of X, which gives what was tuned on\n"
            f"adjusted = RescaledPredictor(predict_proba, tuned={tuned}{kind})\nadjusted.predict(X)",
        }
    return {"command": _command(subject), "python": f"import levelhead as lh\n\n{_python(subject)}"}


def code_at_gamma(subject: Subject, rule: str | None = None) -> dict[str, str]:
    """Return the same for a rule of one strength at any gamma, with {gamma} in its place."""
    rule = str(subject.choice["rule"]) if rule is None else rule
    python, more = RULES[rule].code(), ""
    if python.startswith("write("):
        more = "from levelhead.heads.torch import read, write\n"
    else:
        python = f"adjusted = {python}{UNDO}"
    counts = f"counts = {_counts_in_python(subject)}\n" if RULES[rule].follows_counts else ""
    option = "" if RULES[rule].unsaid else f" --rule {rule}"
    return {
        "command": f"levelhead rescale {shlex.quote(subject.model or MODEL)} --counts {_counts_in_command(subject)}"
        f" --gamma {{gamma}}{option} -o {_adjusted(subject.model or MODEL)}",
        "python": f"import levelhead as lh\n{more}\n{counts}{python}",
    }


def label_code(subject: LabelSubject) -> dict[str, str]:
    """Return the same for several labels per sample."""
    if subject.tuned_file:
        what, before = json.dumps(subject.tuned_file), ""
    else:
        by = "" if subject.metric in ("macro_f1", "cost") else f', metric="{subject.metric}"'
        what, before = (
            "tuned",
            f"tuned = lh.tune_labels(logits, labels, counts{by})    # those of this page\n",
        )
    python = f"import levelhead as lh\n\n{before}adjusted = lh.adjust_(model, {what}){UNDO}"
    return {"command": _command(subject), "python": python}


def tune_command(subject: Subject | LabelSubject, *more: str) -> str:
    """Return the command that tunes on the files of a page, under the names that they have, with more options."""
    files, choice = subject.files, subject.choice
    if place := files.get("run") or files.get("snapshot"):
        return " ".join(["levelhead report", shlex.quote(place), *more, "-o page.html"])
    files = files or {"logits": "logits.npy", "labels": "labels.npy", "counts": "counts.json"}
    given = [f"--{what} {shlex.quote(file)}" for what, file in files.items()]
    default = "macro_f1" if isinstance(subject, LabelSubject) else "balanced_error"
    own = [] if subject.metric in (default, "cost") else [f"--metric {subject.metric}"]
    if isinstance(subject, LabelSubject):
        return " ".join(["levelhead tune --task multilabel", *given, *own, "-o", TUNED])
    if "counts" not in files:
        given.append(f"--counts {_counts_in_command(subject)}")
    if subject.kind == "probabilities":
        given.append("--kind probabilities")
    if subject.target is not None:
        given.append(f"--target {','.join(map(repr, subject.target.tolist()))}")
    if len(choice.get("candidates") or ()) < 3 and not any(
        option.startswith("--rule") for option in more
    ):
        own.append(f"--rule {choice['rule']}")
    return " ".join(["levelhead tune", *given, *own, *more, "-o", TUNED])


def _command(subject: Subject | LabelSubject) -> str:
    """Return the command that applies the choice to a model's file, also where no gain is to be expected."""
    model, choice = subject.model or MODEL, subject.choice
    tuned = f"{shlex.quote(subject.tuned_file or TUNED)}{' --anyway' if subject.worthwhile is False else ''}"
    apply = f"levelhead adjust {shlex.quote(model)} --tuned {tuned} -o {_adjusted(model)}"
    if subject.tuned_file:
        return apply
    if isinstance(subject, LabelSubject) or not subject.files.keys() & set(OF_A_RUN):
        return f"{tune_command(subject)}\n{apply}"
    if RULES[choice["rule"]].code() and not choice.get("offset"):  # which only a tuned.json holds
        return code_at_gamma(subject)["command"].replace("{gamma}", repr(subject.gamma))
    return ""


def _python(subject: Subject) -> str:
    choice = subject.choice
    if subject.tuned_file:
        return f"adjusted = lh.adjust_(model, {json.dumps(subject.tuned_file)}){UNDO}"
    one = RULES[choice["rule"]] if len(choice.get("candidates") or ()) < 3 else Auto()
    rule = "" if isinstance(one, Auto) else f', rule="{choice["rule"]}"'
    metric = "" if subject.metric in ("balanced_error", "cost") else f', metric="{subject.metric}"'
    blind, before = choice["chosen_on"] == "unlabelled", f"counts = {_counts_in_python(subject)}\n"
    known, labels, counts, end = "logits", "labels", "counts", ""
    if place := subject.files.get("run") or subject.files.get("snapshot"):
        file = Path(place, "snapshot.safetensors").as_posix() if "run" in subject.files else place
        split = subject.samples if blind else "held-out"
        before, counts = f"snapshot = lh.Snapshot.load({json.dumps(file)})\n", "snapshot.counts"
        known, labels = f'snapshot.logits("{split}")', f'snapshot.labels["{split}"]'
        if isinstance(one, Auto) or one.needs_norms:
            rule = f", rule=lh.rules.{type(one).__name__}(norms=snapshot.head.norms)"
    if subject.kind == "probabilities":
        end += ', kind="probabilities"'
    if subject.target is not None:
        end += f", target={subject.target.tolist()}"
    call = f"match_prior({known}, {counts}" if blind else f"tune({known}, {labels}, {counts}"
    note = "" if known != "logits" else "    # those of this page"
    return f"{before}tuned = lh.{call}{rule}{metric}{end}){note}\nadjusted = lh.adjust_(model, tuned){UNDO}"


def _counts_in_command(subject: Subject) -> str:
    if "counts" in subject.files:
        return shlex.quote(subject.files["counts"])
    known = subject.classes <= 20 and bool(subject.views)
    return ",".join(map(str, subject.counts.tolist())) if known else "counts.json"


def _counts_in_python(subject: Subject) -> str:
    return (
        json.dumps(subject.counts.tolist())
        if subject.classes <= 20
        else "[...]  # training samples of each class"
    )


def _adjusted(model: str) -> str:
    """Return where the adjusted model goes: next to the model, by a name that its folder does not have yet."""
    names = (
        f"adjusted{more}{Path(model).suffix}" for more in ("", *(f"-{i}" for i in range(2, 100)))
    )
    path = next(
        (free for name in names if not (free := Path(model).with_name(name)).exists()), Path(model)
    )
    return shlex.quote(path.as_posix())
