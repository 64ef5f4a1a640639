"""What `tune` also takes for one minor version: a model with its loader, and several labels per sample."""

from functools import wraps
from typing import Any, get_args

from .choice import tune as choice
from .core.choices import LabelTask
from .core.errors import LevelheadError, check_choice
from .core.labels import IGNORED
from .core.logits import are_log_probabilities
from .core.per_class import names_in_config
from .heads.collect import collect_scores, is_module
from .labels.label_inputs import check_multilabel_options
from .labels.tune_labels import tune_labels


@wraps(choice.tune)
def tune(logits: Any, labels: Any = None, counts: Any = None, *, task: LabelTask = "multiclass", **options: Any) -> Any:
    check_choice("task", task, get_args(LabelTask))
    if is_module(logits):
        model, ignored = logits, options.get("ignore_index", IGNORED)
        logits, labels = collect_scores(model, labels, ignore_index=ignored, progress=options.get("progress"))
        if options.get("names") is None:
            options["names"] = names_in_config(getattr(model, "config", None), logits.shape[1])
        one_logit = logits.shape[1] == 2 and not logits[:, 0].any()
        fixed = one_logit or options.get("kind") == "probabilities" or are_log_probabilities(logits)
        if fixed and options.get("rule", "auto") == "auto":
            options["rule"] = "shift"  # all that fits the head, if that is one logit or a softmax follows it
    if task == "multiclass":
        return choice.tune(logits, labels, counts, **options)
    if options.pop("background", None) is not None:
        raise LevelheadError("labels that do not compete have no background; leave it out", parameter="background")
    for name in ("range", "ignore_index"):
        options.pop(name, None)
    apart = {name: options.pop(name, None) for name in ("unlabelled", "target", "norms", "bias")}
    check_multilabel_options(options.pop("rule", "auto"), options.pop("criterion", "guided"), **apart)
    return tune_labels(logits, labels, counts, **options)


tune.__module__ = __name__  # where pickle finds it
