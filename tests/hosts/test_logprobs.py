"""Label scores of language models: each server's form, words of several tokens, labels that are not listed."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import levelhead as lh
from levelhead.hosts.logprobs import read_logprobs

FIXTURES = Path(__file__).parent / "logprobs"
LABELS = ["negative", "neutral", "positive"]
# Of each answer, what its tokens say by hand: " neutral", "Positive" and "positive", "neg" and "Neg".
BY_HAND = np.array([[0.05, 0.2, 0.6 + 0.1], [0.7 + 0.02, 0.2, 0.05]])


def chat(*steps):
    """Return an answer of a chat, of a token and {token: probability} for each step."""
    content = [
        {
            "token": token,
            "logprob": math.log(choices[token]),
            "top_logprobs": [
                {"token": other, "logprob": math.log(share)} for other, share in choices.items()
            ],
        }
        for token, choices in steps
    ]
    return {"choices": [{"logprobs": {"content": content}}]}


def shares(answers, names, **options):
    return np.exp(read_logprobs(answers, names, **options).scores)


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_server_gives_the_same_scores(path):
    read = read_logprobs(path, LABELS)
    expected = BY_HAND / BY_HAND.sum(axis=1, keepdims=True)
    assert read.names == tuple(LABELS)
    assert not read.missing.any()
    np.testing.assert_allclose(np.exp(read.scores), expected, atol=1e-5)


def test_objects_of_a_client_and_texts_are_read_as_their_json():
    answer = chat(("yes", {"yes": 0.8, "no": 0.2}))

    class Answer:
        def model_dump(self):
            return answer

    for form in (answer, json.dumps(answer), Answer()):
        np.testing.assert_allclose(shares([form], ["no", "yes"]), [[0.2, 0.8]])


def test_labels_that_begin_alike_are_told_apart_by_the_next_token():
    first = {" un": 0.8, "sure": 0.2}
    answer = chat((" un", first), ("sure", {"sure": 0.75, "happy": 0.25}))
    expected = [[0.8 * 0.75, 0.8 * 0.25, 0.2]]
    np.testing.assert_allclose(shares([answer], ["unsure", "unhappy", "sure"]), expected)


def test_labels_that_begin_alike_share_a_token_after_which_nothing_is_known():
    answer = chat(("sure", {" un": 0.4, "sure": 0.6}))
    np.testing.assert_allclose(shares([answer], ["unsure", "unhappy", "sure"]), [[0.2, 0.2, 0.6]])


def test_a_label_that_begins_another_is_told_from_it():
    """Ratings from 1 to 10: the token 1 is not half a 10, whether 10 is a token or two."""
    names = ["1", "2", "10"]
    of_one_token = chat(("1", {"1": 0.6, "10": 0.3, "2": 0.1}))
    np.testing.assert_allclose(shares([of_one_token], names), [[0.6, 0.1, 0.3]])
    for end in ("\n", "", ".", "<|im_end|>"):
        ended = chat(("1", {"1": 0.9, "2": 0.1}), (end, {end: 0.8, "0": 0.2}))
        np.testing.assert_allclose(shares([ended], names), [[0.72, 0.1, 0.18]])
    of_two_tokens = chat(("1", {"1": 0.9, "2": 0.1}), ("0", {"\n": 0.2, "0": 0.8}))
    np.testing.assert_allclose(shares([of_two_tokens], names), [[0.18, 0.1, 0.72]])
    words = chat(
        ("no", {"no": 0.9, "yes": 0.1}), (" way", {" way": 0.7, "\n": 0.3}), ("!", {"!": 1.0})
    )
    np.testing.assert_allclose(shares([words], ["no", "no way", "yes"]), [[0.27, 0.63, 0.1]])


def test_a_label_of_several_words_is_known_by_its_first_token():
    answer = chat(("New", {"New": 0.7, "Los": 0.3}), (" York", {" York": 0.9, " Delhi": 0.1}))
    np.testing.assert_allclose(shares([answer], ["Los Angeles", "New York"]), [[0.3, 0.7]])


def test_an_answer_that_only_begins_like_a_label_is_not_that_label():
    answer = chat(("I", {"I": 0.6, "no": 0.3, "yes": 0.1}), (" think", {" think": 0.9, " am": 0.1}))
    with pytest.warns(lh.warnings.MissingClassWarning, match="'irrelevant'"):
        read = read_logprobs([answer], ["irrelevant", "no", "yes"])
    assert read.missing.tolist() == [[True, False, False]]


def test_an_empty_line_before_the_label_is_passed_over():
    answer = chat(("\n", {"\n": 0.9, "yes": 0.1}), ("no", {"no": 0.5, "yes": 0.25}))
    expected = np.array([[0.9 * 0.5, 0.1 + 0.9 * 0.25]])
    np.testing.assert_allclose(shares([answer], ["no", "yes"]), expected / expected.sum())


@pytest.mark.parametrize("marks", ['"', "**", " (", "\n`"])
def test_marks_before_the_label_are_passed_over(marks):
    answer = chat(
        (marks, {marks: 0.9, "yes": 0.1}), ("no", {"no": 0.5, "yes": 0.25}), (marks, {marks: 1})
    )
    expected = np.array([[0.9 * 0.5, 0.1 + 0.9 * 0.25]])
    np.testing.assert_allclose(shares([answer], ["no", "yes"]), expected / expected.sum())


def test_marks_that_begin_a_label_are_a_part_of_it():
    answer = chat(("(", {"(": 0.8, "a": 0.2}), ("a", {"a": 0.75, "b": 0.25}))
    np.testing.assert_allclose(shares([answer], ["(a)", "(b)", "a"]), [[0.6, 0.2, 0.2]])


def test_a_label_that_is_not_listed_has_at_most_what_is_left():
    few_left = chat(("yes", {"yes": 0.9, "no": 0.09}))  # 0.01 for all others
    read = read_logprobs(
        [few_left, chat(("yes", {"yes": 0.5, "no": 0.1, "maybe": 0.2}))], ["no", "yes", "maybe"]
    )
    assert read.missing.tolist() == [[False, False, True], [False, False, False]]
    np.testing.assert_allclose(np.exp(read.scores[0]), [0.09, 0.9, 0.01])
    least_listed = chat(("yes", {"yes": 0.5, "no": 0.02}))  # of 0.48, but no token has over 0.02
    with pytest.warns(
        lh.warnings.MissingClassWarning, match="never among the tokens listed: 'maybe'"
    ):
        row = shares([least_listed], ["no", "yes", "maybe"])
    np.testing.assert_allclose(row, np.array([[0.02, 0.5, 0.02]]) / 0.54)


def test_answers_without_any_label_are_warned_of():
    answers = [chat(("yes", {"yes": 0.7, "no": 0.2})), chat(("well", {"well": 0.7, "so": 0.2}))]
    with pytest.warns(lh.warnings.MissingClassWarning, match="in 1 of 2 answers"):
        rows = shares(answers, ["no", "yes"])
    np.testing.assert_allclose(rows[1], [0.5, 0.5])


def test_case_tells_labels_apart_only_if_asked():
    answer = chat(("US", {"US": 0.6, "us": 0.3}))
    np.testing.assert_allclose(shares([answer], ["us", "US"], exact=True), [[1 / 3, 2 / 3]])
    with pytest.raises(lh.LevelheadError, match="two labels are 'us'; pass exact=True"):
        read_logprobs([answer], ["us", "US"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"choices": [{"message": {"content": "yes"}, "logprobs": null}]}',
            "line 1: expected log-probabilities of tokens, found none; ask for logprobs=True",
        ),
        (
            '{"error": {"message": "overloaded"}}',
            "line 1: the server answered with an error: .*overloaded",
        ),
        (
            '{"response": {"status_code": 500, "body": {"error": "no such model"}}}',
            "error: no such model",
        ),
        ("[1, 2]", "line 1: expected an answer as a JSON object"),
        (
            '{"choices": [{"logprobs": {"content": [{"token": "no", "logprob": NaN, "top_logprobs": []}]}}]}',
            "line 1: expected log-probabilities of tokens, found none",
        ),
        (
            '{"choices": [{"logprobs": {"content": [{"token": null, "logprob": -1, "top_logprobs": []}]}}]}',
            "line 1: expected log-probabilities of tokens, found none",
        ),
        (
            '{"choices": [{"text": "no", "index": 0}, {"text": "yes", "index": 1}]}',
            "line 1: expected the answer to one prompt, with n=1, got 2 choices",
        ),
        ("yes", "line 1: expected the JSON of an answer"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_line(tmp_path, line, message):
    path = tmp_path / "answers.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(lh.LevelheadError, match=message):
        read_logprobs(path, ["no", "yes"])


@pytest.mark.parametrize("names", ["yes", ["yes"], ["yes", " "], [0, 1], None, {"yes": 1, "no": 0}])
def test_names_that_are_no_labels_are_refused(names):
    with pytest.raises(lh.LevelheadError, match="names: expected"):
        read_logprobs([chat(("yes", {"yes": 0.9}))], names)


@pytest.mark.parametrize(
    ("answers", "message"),
    [(chat(("yes", {"yes": 0.9})), "expected a list of answers, got a single one"), (None, "None")],
)
def test_what_is_no_list_of_answers_is_refused(answers, message):
    with pytest.raises(lh.LevelheadError, match=f"answers: .*{message}"):
        read_logprobs(answers, ["no", "yes"])


@pytest.mark.parametrize("unlisted", [-9999.0, -math.inf])
def test_a_token_of_which_a_server_knows_nothing_sets_no_bound(unlisted):
    """OpenAI writes -9999 for a drawn token that is not among the likeliest; others write -inf."""
    answer = chat(("maybe", {"maybe": 1.0, "yes": 0.5, "no": 0.02}))
    step = answer["choices"][0]["logprobs"]["content"][0]
    step["logprob"] = unlisted
    step["top_logprobs"][0]["logprob"] = unlisted
    names = ["no", "yes", "maybe", "never"]
    with pytest.warns(lh.warnings.MissingClassWarning, match="'never'"):
        row = shares([answer], names)
    np.testing.assert_allclose(row, np.array([[0.02, 0.5, 0.02, 0.02]]) / 0.56)


def test_no_answers_are_refused():
    with pytest.raises(lh.LevelheadError, match="expected at least one answer"):
        read_logprobs([], ["no", "yes"])


def test_scores_are_tuned_in_four_lines_without_a_warning(tmp_path):
    rng = np.random.default_rng(0)
    names = ["billing", "delivery", "other"]
    truth = rng.choice(3, p=[0.5, 0.3, 0.2], size=600)
    logits = 2 * np.eye(3)[truth] + rng.normal(size=(600, 3)) + [0.0, 1.0, -2.0]  # it leans
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    lines = [
        json.dumps(chat((names[row.argmax()], dict(zip(names, row.tolist(), strict=True)))))
        for row in probabilities
    ]
    (tmp_path / "held-out.jsonl").write_text("\n".join(lines[:300]))
    (tmp_path / "new.jsonl").write_text("\n".join(lines[300:]))

    held_out = read_logprobs(tmp_path / "held-out.jsonl", names)
    tuned = lh.tune(held_out.scores, truth[:300], names=names)
    new = read_logprobs(tmp_path / "new.jsonl", names)
    after = tuned.apply(new.scores).argmax(axis=1)

    assert tuned.kind == "log-probabilities"
    assert tuned.warnings == ()
    recalls = [
        np.mean([(predicted == truth[300:])[truth[300:] == k].mean() for k in range(3)])
        for predicted in (new.scores.argmax(axis=1), after)
    ]
    assert recalls[1] > recalls[0] + 0.05
