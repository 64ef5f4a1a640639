"""The page of a choice for a head without a bias: its predictions are those that its tables are counted from."""

from pathlib import Path

import numpy as np
import pytest

import levelhead as lh
from levelhead.core.constant_direction import constant_direction
from levelhead.report import of_file, of_tuned
from levelhead.report.calibration import calibration
from levelhead.report.confusion import matrices
from levelhead.report.page import render_page
from levelhead.report.use_it import code_to_use

from ..core.no_bias import FEATURES, LABELS, LOGITS, OFFSETS, FixedOffsets

TUNED = lh.tune(LOGITS, LABELS, rule=FixedOffsets(), features=FEATURES)


def test_matrix_and_tables_agree():
    subject = of_tuned(TUNED, LOGITS, LABELS, features=FEATURES)
    before, after = matrices(subject)
    for matrix, table in zip((before, after), TUNED.tables, strict=True):
        right = [int(row[i].title.split(" of ")[0]) for i, row in enumerate(matrix.rows)]
        assert right == table.right[subject.rare_first].tolist()
        predicted = [
            sum(int(row[j].title.split(" of ")[0]) for row in matrix.rows) for j in range(3)
        ]
        assert predicted == table.predicted[subject.rare_first].tolist()


def test_calibration_is_that_of_the_scores_that_come_out():
    _, after, *_ = calibration(of_tuned(TUNED, LOGITS, LABELS, features=FEATURES)).diagrams
    _, reach = constant_direction(FEATURES)
    scores = LOGITS + np.outer(reach, OFFSETS)
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    losses = -np.log(shares[np.arange(300), LABELS])
    wanted = np.mean([losses[k == LABELS].mean() for k in range(3)])
    assert after.log_loss == pytest.approx(wanted)


def test_without_features_what_needs_them_is_left_out_and_the_page_says_so():
    text = render_page([of_tuned(TUNED, LOGITS, LABELS)])
    assert "Which classes are confused" not in text
    assert "Confusions and calibration are left out" in text
    whole = render_page([of_tuned(TUNED, LOGITS, LABELS, features=FEATURES)])
    assert "Which classes are confused" in whole
    assert "are left out" not in whole
    other = render_page([of_tuned(TUNED, LOGITS, LABELS, measured="test")])
    assert "judged as if all of each offset arrived" in other


def test_commands_and_code_to_copy_have_the_features():
    code = code_to_use(of_tuned(TUNED, LOGITS, LABELS, features=FEATURES))
    assert (
        "levelhead adjust model.safetensors --tuned tuned.json --features features.npy -o"
        in code.shell
    )
    assert "lh.adjust_(model, tuned, features=features)" in code.python
    plain = code_to_use(of_tuned(lh.tune(LOGITS, LABELS)))
    assert "features" not in f"{plain.shell}{plain.python}"


def test_features_that_are_no_part_of_the_choice_are_refused():
    plain = lh.tune(LOGITS, LABELS)
    with pytest.raises(
        lh.LevelheadError, match="features: the choice is not one for a head without"
    ):
        of_tuned(plain, LOGITS, LABELS, features=FEATURES)
    with pytest.raises(lh.LevelheadError, match=r"features: expected numbers \[300, d\]"):
        of_tuned(TUNED, LOGITS, LABELS, features=FEATURES[:200])


def test_the_command_line_has_the_same_matrix_and_its_file_leads_back_to_it(
    tmp_path, monkeypatch, levelhead
):
    monkeypatch.chdir(tmp_path)
    for name, values in (("logits", LOGITS), ("labels", LABELS), ("features", FEATURES)):
        np.save(f"{name}.npy", values)
    words = "tune --logits logits.npy --labels labels.npy --features features.npy"
    status, _, err = levelhead(*words.split(), "-o", "tuned.json", "--report", "page.html")
    assert status == 0, err
    Path("inputs.npy").write_bytes(Path("features.npy").read_bytes())
    again = words.replace("features.npy", "inputs.npy")
    status, _, err = levelhead(*again.split(), "--report", "inputs.html")
    assert "--tuned tuned.json --features inputs.npy" in Path("inputs.html").read_text(
        encoding="utf-8"
    )
    tuned = lh.tune(LOGITS, LABELS, features=FEATURES)
    wanted = matrices(of_tuned(tuned, LOGITS, LABELS, features=FEATURES))
    assert wanted != matrices(of_tuned(lh.tune(LOGITS, LABELS), LOGITS, LABELS))
    assert matrices(of_file("tuned.json")) == wanted
    page = Path("page.html").read_text(encoding="utf-8")
    for cell in wanted[1].rows[0]:
        assert cell.title in page
    assert "--features features.npy" in page
    np.save("features.npy", FEATURES + 1)
    assert matrices(of_file("tuned.json")) == []
