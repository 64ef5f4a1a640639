"""Lines of a file of answers: which request each answers, and where one ends."""

import json
from pathlib import Path

import numpy as np
import pytest

from levelhead.hosts.logprobs import read_logprobs
from levelhead.support.errors import LevelheadError

BATCH = Path(__file__).parent / "logprobs" / "openai_batch.jsonl"
LABELS = ["negative", "neutral", "positive"]


def test_answers_of_a_batch_say_which_request_they_are_of(tmp_path):
    """A batch writes its lines in any order: only `custom_id` tells which label belongs to which."""
    lines = BATCH.read_text(encoding="utf-8").splitlines()
    ids = tuple(json.loads(line)["custom_id"] for line in lines)
    (tmp_path / "turned.jsonl").write_text("\n".join(lines[::-1]), encoding="utf-8")
    read = read_logprobs(BATCH, LABELS)
    turned = read_logprobs(tmp_path / "turned.jsonl", LABELS)
    assert read.ids == ids
    assert turned.ids == ids[::-1]
    order = [turned.ids.index(request) for request in ids]
    np.testing.assert_array_equal(turned.scores[order], read.scores)


def test_answers_without_a_request_of_a_batch_have_no_ids():
    bodies = [
        json.loads(line)["response"]["body"]
        for line in BATCH.read_text(encoding="utf-8").splitlines()
    ]
    assert read_logprobs(bodies, LABELS).ids is None
    nameless = [{"custom_id": None, "response": {"body": body}} for body in bodies]
    assert read_logprobs(nameless, LABELS).ids is None


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "the file is empty"), (b"\xff\xfe{", "not valid UTF-8")]
)
def test_a_file_without_answers_is_named(tmp_path, content, message):
    path = tmp_path / "answers.jsonl"
    path.write_bytes(content)
    with pytest.raises(LevelheadError, match=f"answers.jsonl: {message}"):
        read_logprobs(path, LABELS)


def test_only_a_line_feed_ends_a_line(tmp_path):
    """Clients write other line separators, which a text may have, as they are."""
    answer = json.loads(BATCH.read_text(encoding="utf-8").splitlines()[0])
    message = answer["response"]["body"]["choices"][0]["message"]
    message["content"] = "positive\u2028\x85and more"
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps(answer, ensure_ascii=False) + "\n", encoding="utf-8")
    assert len(read_logprobs(path, LABELS).scores) == 1
