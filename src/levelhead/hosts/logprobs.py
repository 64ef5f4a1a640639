"""The label scores of a language model, read from the answers of the server that runs it.

Ask for one word, the label, and for the log-probabilities of the tokens it was chosen from. OpenAI's
servers, vLLM, llama.cpp and others write them into each answer; `read_logprobs` makes scores [N, K]
of them, which `levelhead.tune` takes as any model's. Nobody needs to know how the model was trained.

1. `_records` yields the answers, of a file or in memory, as dicts.
2. `_steps` finds the tokens of an answer, with those that each was chosen from, by the first of `FORMS` that fits.
3. `_score` adds up the probabilities of the tokens that begin each label.

A label may have several tokens ("un" + "happy"), and a server lists alternatives (20 at most, of most servers) only for
the tokens that were written. So the scores are exact where labels differ in their first token, and else the best that
the answers tell; `LabelScores.missing` says which of them are bounds. Short labels that begin differently, such as A,
B, C, have neither trouble.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..core.class_names import first_repeated, listed
from ..support import text
from ..support.errors import LevelheadError, in_file, visible
from ..support.logits import log_softmax
from ..support.warnings import MissingClassWarning, warn

# JSON as a server wrote it: what is in it is found out by trying.
ServerJson: TypeAlias = Any
_UNLISTED = -9999.0  # of OpenAI and vLLM: less is known of this token than of those that are listed
_MARKS = "\"'`*_([{\u201c\u2018\u00ab"  # that models write before a label, as in **yes** or "yes"
_ASK = "ask for logprobs=True and top_logprobs=20 (n_probs=20 of llama.cpp's /completion)"


class Step(NamedTuple):
    """One token of an answer, whichever server wrote it."""

    token: str  # the one that was written, with its space before it
    # {token: log-probability} of those it was chosen from, itself among them.
    choices: dict[str, float]


@dataclass(frozen=True, eq=False)
class LabelScores:
    """How likely each label is, of each answer.

    Args:
        scores: [N, K], log-probabilities among the labels, each row adds up to 1.
        names: the labels, [K].
        missing: [N, K], whether a label was not among the tokens listed: its score is then the most
            that it can be.
        ids: [N], the `custom_id` of the request that each line of a batch answers; None of others. Lines of
            a batch come in any order: put scores or labels in that of the other by it.

    Example:
        ``scores = read_logprobs("answers.jsonl", ["spam", "ham"])``, then
        ``lh.tune(scores.scores, labels, names=scores.names)``.
    """

    scores: np.ndarray
    names: tuple[str, ...]
    missing: np.ndarray
    ids: tuple[str, ...] | None = None


def read_logprobs(
    answers: str | Path | Iterable[ServerJson], names: Sequence[str], *, exact: bool = False
) -> LabelScores:
    """Return scores [N, K] of the labels `names` from the answers of a language model's server.

    A label gets the probability of every token that begins it, in any case and with or without a space,
    quotes or asterisks before it. Where a token begins several labels, the tokens after it decide, as far as they were
    written; else it is the label that it is whole (1, and not 10), or they share its probability. A
    label that is not listed gets the least probability that is, or all that is left if that is less:
    it cannot have more.

    Args:
        answers: a file with the JSON of an answer on each line, such as a batch's, or such answers as
            texts, dicts or objects of a client. Of chat completions, completions and responses of
            OpenAI-compatible servers (vLLM, llama.cpp and others), or of llama.cpp's /completion.
        names: the labels, in the order of the scores.
        exact: whether "Yes" and "yes" are different labels.

    Returns:
        Scores for ``lh.tune(read.scores, labels)``, in the order of the answers; the labels' names, which
        scores are bounds and, of a batch, which request each line answers.

    Raises:
        LevelheadError: fewer than two labels, or two alike; an answer that is no JSON, holds an error
            of the server, or has no log-probabilities. It names the line or the answer.

    >>> top = [{"token": "Yes", "logprob": -0.1}, {"token": " no", "logprob": -2.5}]
    >>> steps = [{"token": "Yes", "logprob": -0.1, "top_logprobs": top}]
    >>> answer = {"choices": [{"logprobs": {"content": steps}}]}
    >>> read_logprobs([answer], ["no", "yes"]).scores.round(2)
    array([[-2.49, -0.09]])
    """
    labels = _check_names(names, exact)
    opening = _opening(labels)
    rows = []
    listed_rows = []
    ids = []
    for place, answer in _records(answers):
        row, listed_here = _score(_steps(answer, place), labels, opening, exact)
        rows.append(row)
        listed_rows.append(listed_here)
        if answer.get("custom_id") is not None:
            ids.append(str(answer["custom_id"]))
    if not rows:
        raise LevelheadError("expected at least one answer, got none", parameter="answers")
    # Among the labels alone: whatever else the model might have said is left out, and rows add up to 1.
    missing = ~np.array(listed_rows)
    _warn_of_missing(missing, names)
    scores = log_softmax(np.array(rows))
    requests = None
    if len(ids) == len(rows):
        requests = tuple(ids)
    return LabelScores(scores, tuple(map(str, names)), missing, requests)


def _check_names(names: Sequence[str], exact: bool) -> list[str]:
    """Return the labels as they are looked for: without spaces around them and, unless `exact`, without case."""
    is_list = np.ndim(names) == 1  # a text is none, nor is what has no order
    if not is_list or len(names) < 2 or not all(isinstance(name, str) for name in names):
        raise LevelheadError("expected two or more labels, each a text", parameter="names")
    labels = [_plain(name, exact) for name in names]
    if "" in labels:
        raise LevelheadError("expected labels of at least one letter", parameter="names")
    repeated = first_repeated(labels)
    if repeated is not None:
        alike = f"two labels are {repeated!r}"
        raise LevelheadError(
            f"{alike}; pass exact=True if case tells them apart", parameter="names"
        )
    return labels


def _opening(labels: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern of what may stand before a label: spaces, and marks that none of them begins with."""
    marks = [mark for mark in _MARKS if not any(label.startswith(mark) for label in labels)]
    return re.compile(rf"[\s{re.escape(''.join(marks))}]*")


def _plain(word: str, exact: bool) -> str:
    if exact:
        return word.strip()
    return word.strip().casefold()


# ---- Where answers are --------------------------------------------------------------------------


def _records(answers: str | Path | Iterable[ServerJson]) -> Iterable[tuple[str, ServerJson]]:
    """Yield each answer, as dicts and lists, and where it is, for messages.

    A text is always the name of a file: an answer in a text of its own comes in a list.
    """
    if isinstance(answers, str | Path):
        # Not by `splitlines`: a text may have other separators of lines in it, which JSON leaves as they are.
        with in_file(answers):
            lines = text.read(answers, "answers, a line of JSON each").split("\n")
        for i, line in enumerate(lines):
            if line.strip():
                place = f"{answers}, line {i + 1}"
                yield place, _parsed(line, place)
        return
    if isinstance(answers, Mapping) or hasattr(answers, "model_dump"):
        raise LevelheadError("expected a list of answers, got a single one", parameter="answers")
    if not isinstance(answers, Iterable):
        expected = "expected a file, or a list of answers"
        raise LevelheadError(f"{expected}, got {type(answers).__name__}", parameter="answers")
    for i, answer in enumerate(answers):
        place = f"answer {i}"
        if hasattr(answer, "model_dump"):  # an object of OpenAI's client
            answer = answer.model_dump()
        if isinstance(answer, str | bytes):
            answer = _parsed(answer, place)
        yield place, answer


def _parsed(line: str | bytes, place: str) -> ServerJson:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LevelheadError(f"{place}: expected the JSON of an answer ({error})") from None


# ---- What answers hold --------------------------------------------------------------------------


def _steps(answer: ServerJson, place: str) -> list[Step]:
    """Return the tokens of an answer, by the first form that fits it.

    Servers do not say which form theirs is, and gateways mix them. Each form asks for keys that the others do not have,
    so that at most one gives tokens.

    Args:
        answer: as the server wrote it, or a line of a batch with the answer inside.
        place: where it is, for messages.
    """
    if isinstance(answer, Mapping) and isinstance(answer.get("response"), Mapping):
        answer = answer["response"].get("body", answer["response"])  # a line of a batch
    if not isinstance(answer, Mapping):
        raise LevelheadError(f"{place}: expected an answer as a JSON object, got {answer!r:.60}")
    _check_one_prompt(answer, place)
    for form in FORMS:
        # An answer of another form lacks some key or has something else there.
        try:
            steps = form(answer)
        except (KeyError, TypeError, IndexError, AttributeError, ValueError):
            continue
        if steps:
            return steps
    problem = answer.get("error")
    if problem:
        said = visible(str(problem))
        raise LevelheadError(f"{place}: the server answered with an error: {said:.200}")
    raise LevelheadError(f"{place}: expected log-probabilities of tokens, found none; {_ASK}")


def _check_one_prompt(answer: Mapping[str, ServerJson], place: str) -> None:
    """Raise LevelheadError for a completion of several prompts: they and the choices of one look the same."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or len(choices) < 2:
        return
    if isinstance(choices[0], Mapping) and "text" in choices[0]:
        expected = "expected the answer to one prompt, with n=1"
        raise LevelheadError(f"{place}: {expected}, got {len(choices)} choices")


def _chat(answer: Mapping[str, ServerJson]) -> list[Step]:
    """Of /v1/chat/completions: a list of tokens, each with its `top_logprobs`."""
    return [_step(token) for token in answer["choices"][0]["logprobs"]["content"]]


def _completion(answer: Mapping[str, ServerJson]) -> list[Step]:
    """Of /v1/completions: parallel lists, with {token: log-probability} for each token."""
    logprobs = answer["choices"][0]["logprobs"]
    steps = []
    for token, logprob, top in zip(
        logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
    ):
        if logprob is not None:  # the first token of an echoed prompt has none
            steps.append(_chosen(token, [(token, float(logprob)), *(top or {}).items()]))
    return steps


def _responses(answer: Mapping[str, ServerJson]) -> list[Step]:
    """Of /v1/responses: as in a chat, of each part of each message."""
    steps = []
    for message in answer["output"]:
        if message.get("type") != "message":  # such as a reasoning, which has no tokens
            continue
        for part in message["content"]:
            steps += [_step(token) for token in part["logprobs"]]
    return steps


def _llama_cpp(answer: Mapping[str, ServerJson]) -> list[Step]:
    """Of llama.cpp's /completion: as in a chat; of `post_sampling_probs`, probabilities."""
    return [_step(token) for token in answer["completion_probabilities"]]


FORMS: tuple[Callable[[Mapping[str, ServerJson]], list[Step]], ...] = (
    _chat,
    _completion,
    _responses,
    _llama_cpp,
)


def _step(written: Mapping[str, ServerJson]) -> Step:
    """Return a token and those it was chosen from, of one that lists them as tokens."""
    listed_tokens = written.get("top_logprobs")
    if listed_tokens is None:
        listed_tokens = written["top_probs"]
    tokens = [written, *listed_tokens]
    return _chosen(written["token"], [(other["token"], _logprob(other)) for other in tokens])


def _chosen(token: str, tokens: Iterable[tuple[str, float]]) -> Step:
    """Return a token and those it was chosen from, of which it is one.

    A server lists the likeliest ones, and the one that was drawn may be none of them: then it has the most that it
    can have, unless the server says what it has.

    Args:
        token: that was written.
        tokens: each with its log-probability.

    Raises:
        ValueError: a token that is no text, or NaN.
    """
    choices: dict[str, float] = {}
    for other, logprob in tokens:
        if not isinstance(other, str) or math.isnan(logprob):
            raise ValueError(f"no log-probability of a token: {other!r}, {logprob}")
        if logprob > _UNLISTED:
            # Tokens of different numbers may be written alike: the likeliest is meant.
            choices[other] = max(choices.get(other, -math.inf), logprob)
    if token not in choices:
        choices[token] = _most_left(choices)
    return Step(token, choices)


def _logprob(token: Mapping[str, ServerJson]) -> float:
    """Return the log-probability of a token; llama.cpp writes probabilities after sampling, which may be 0."""
    if "logprob" in token:
        return float(token["logprob"])
    return math.log(max(float(token["prob"]), 1e-300))


# ---- From tokens to labels ----------------------------------------------------------------------


def _score(
    steps: Sequence[Step], labels: Sequence[str], opening: re.Pattern[str], exact: bool
) -> tuple[list[float], list[bool]]:
    """Return the log-probability of each label, and whether it is listed.

    Only what the model wrote is known beyond its first token: the tokens that might have followed
    another one are not. So the answer is followed as long as what is written begins several labels
    ("un" of unhappy and unsure), and all other tokens are counted where they stand.

    Args:
        steps: the tokens of one answer, in order.
        labels: [K], as `_check_names` returned them.
        opening: what may stand before a label.
        exact: whether case tells labels apart.

    Returns:
        [K] log-probabilities, not yet those among the labels alone; of a label that is not listed, the most that it
        can have. And [K], whether each is listed.
    """

    def bare(words: str) -> str:
        """Return what was written without what stands before a label and, unless `exact`, without case."""
        words = opening.sub("", words, count=1)
        if exact:
            return words
        return words.casefold()

    whole = "".join(step.token for step in steps)
    possible = range(len(labels))  # labels that what is written so far begins
    fitting = _labels_begun(bare(whole), labels, possible)
    scores = [-math.inf] * len(labels)
    most = [0.0] * len(labels)  # that a label which is not listed can have
    written = ""
    so_far = 0.0  # the log-probability of what is written so far
    for i, step in enumerate(steps):
        for k in possible:
            most[k] = so_far + _most_left(step.choices)
        undecided: Sequence[int] = ()
        for token, logprob in step.choices.items():
            said = bare(written + token)
            begun = _labels_begun(said, labels, possible)
            goes_on = token == step.token and i + 1 < len(steps)
            if not goes_on and not said:
                continue  # an empty line or a quote, after which any label may come
            if goes_on:
                # What follows is known: whether it is a label at all, and which of several.
                begun = [k for k in begun if k in fitting or len(begun) > 1]
                if len(begun) > 1:
                    undecided = begun
                    continue
            # A token that begins several labels, and after which nothing is known, is shared, unless it is one of
            # them: "1" may begin 10, but 10 is most often a token of its own.
            begun = [k for k in begun if labels[k] == said.rstrip()] or begun
            for k in begun:
                share = so_far + logprob - math.log(len(begun))
                scores[k] = float(np.logaddexp(scores[k], share))
        if not undecided:
            break
        # The written token begins several labels: the next one decides among these.
        written += step.token
        so_far += step.choices[step.token]
        possible = undecided
    # What is not listed has the most that it can have, so that no offset has to lift it from minus infinity.
    is_listed = [score > -math.inf for score in scores]
    for k, label_listed in enumerate(is_listed):
        if not label_listed:
            scores[k] = most[k]
    return scores, is_listed


def _labels_begun(said: str, labels: Sequence[str], among: Sequence[int]) -> list[int]:
    """Return the labels that a text begins or is, or else the one that begins it as whole words.

    "un" begins unhappy; "no" begins "no." and "no one", but not "nothing". Of the labels no and no way, "no"
    begins both, but only the first begins "no.", and only the second "no way to tell".
    """
    # A line that has ended goes on with no label: "no\n" is "no", and does not begin "no way".
    begun = [k for k in among if labels[k] == said.rstrip() or labels[k].startswith(said)]
    if begun:
        return begun
    passed = []
    for k in among:
        follows = said[len(labels[k]) : len(labels[k]) + 1]
        if said.startswith(labels[k]) and not follows.isalnum():
            passed.append(k)
    longest = max((len(labels[k]) for k in passed), default=0)
    return [k for k in passed if len(labels[k]) == longest]


def _most_left(choices: Mapping[str, float]) -> float:
    """Return the most that the logarithm of the probability of a token can be that is not listed.

    Less than the least of those listed, as the likeliest are; and no more than what they leave of 1. What is left is
    not trusted below 1e-9, where the servers' rounding is larger.
    """
    left = 1.0 - sum(math.exp(logprob) for logprob in choices.values())
    least = min(choices.values(), default=0.0)
    if left > 1e-9:
        return min(least, math.log(left))
    return least


def _warn_of_missing(missing: np.ndarray, names: Sequence[str]) -> None:
    """Warn of labels that are in no list, and of answers in which none is.

    The first are usually written otherwise by the model ("Positive." for "pos"), the second are answers in prose.
    """
    never = [repr(names[k]) for k in np.flatnonzero(missing.all(axis=0)).tolist()]
    if never:
        words = f"never among the tokens listed: {listed(never)}"
        more = "such scores say nothing; ask for more tokens, or name the labels in the prompt"
        warn(MissingClassWarning(f"{words}; {more}"))
    without = int(missing.all(axis=1).sum())
    if without:
        words = f"no label is among the tokens listed in {without} of {len(missing)} answers"
        warn(
            MissingClassWarning(f"{words}, which are taken to be level; ask for one word, a label")
        )
