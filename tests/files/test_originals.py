import json

import pytest

from levelhead.files.edits import Edit, rewrite
from levelhead.files.originals import Original, load_originals, save_originals


def test_originals_survive_a_file_and_a_cut_file_is_refused(tmp_path):
    source = tmp_path / "a"
    source.write_bytes(b"0123456789")
    kept = {
        "b": Original(
            "a", *rewrite(source, tmp_path / "b", lambda _: [Edit(2, 3, b"new"), Edit(7, 0, b"!")])
        )
    }
    save_originals(tmp_path / "b.original", kept)
    assert load_originals(tmp_path / "b.original") == kept
    whole = (tmp_path / "b.original").read_bytes()
    (tmp_path / "b.original").write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="cut short"):
        load_originals(tmp_path / "b.original")


@pytest.mark.parametrize(
    "edits", [[[-5, 3, 0]], [[10, 20, 0], [15, 5, 0]], [["a", 5, 0]], [[1, 2]], [[0, -1, 0]], 5]
)
def test_originals_with_invalid_edits_are_refused(tmp_path, edits):
    facts = {"levelhead": "original", "files": {"b": {"name": "x", "sha256": "", "edits": edits}}}
    (tmp_path / "o").write_text(json.dumps(facts) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="not a file that `levelhead adjust` kept"):
        load_originals(tmp_path / "o")


def test_originals_that_name_another_folder_are_refused(tmp_path):
    (tmp_path / "o").write_text(
        '{"levelhead": "original", "files": {"b": {"name": "../x", "sha256": "", "edits": []}}}\n',
        encoding="utf-8",
    )
    with pytest.raises(
        ValueError, match=r"expected the name of a file in the same folder, got '\.\./x'"
    ):
        load_originals(tmp_path / "o")
