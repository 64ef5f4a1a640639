"""What a notebook shows: short words, HTML in which every foreign text is text, and pictures that hold the numbers."""

import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import levelhead as lh
from levelhead.path.curve import Curve
from levelhead.show.plot import draw_norms, draw_recall
from levelhead.show.style import html, sparkline

pyplot = pytest.importorskip("matplotlib.pyplot")
pytestmark = pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")

EVIL = "</script><img src=x onerror=alert(1)>\"'&"
COUNTS = [1000, 200, 40]


@pytest.fixture(autouse=True)
def figures():
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


RNG = np.random.default_rng(0)
HEAD = lh.Head(np.eye(3, 5) * np.array([[1.0], [0.7], [0.4]]), names=["cat", EVIL, "$x_{$"])
LABELS = RNG.integers(3, size=300)
LOGITS = HEAD.logits(2 + RNG.normal(size=(300, 5)) + 2 * np.eye(3, 5)[LABELS])


@pytest.fixture(scope="module")
def path():
    return lh.gamma_path(LOGITS, LABELS, COUNTS)


@pytest.fixture(scope="module")
def tuned():
    return lh.tune(LOGITS, LABELS, COUNTS, rule="shift", chosen_on=f"{EVIL} $x_{{$")


@pytest.fixture(scope="module")
def adjusted():
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(5, 3, bias=False))
    model[0].weight.data.copy_(torch.tensor(HEAD.weight))
    return lh.rescale_(model, COUNTS, gamma=0.5)


@pytest.fixture(params=["path", "tuned", "adjusted"])
def result(request):
    return request.getfixturevalue(request.param)


class Reader(HTMLParser):
    """The tags of a page, whether each is closed, and its text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.open, self.attributes, self.words = [], [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


OURS = {"div", "strong", "table", "tr", "th", "td", "small", "svg", "rect", "polyline", "path"}


def test_html_is_short_and_well_formed_and_has_no_tag_of_others(result):
    page = result._repr_html_()
    read = Reader(page)
    assert len(page) < 5000
    assert read.open == []
    assert set(read.tags) <= OURS
    assert not [
        name for name in read.attributes if name.startswith("on") or name in ("src", "href")
    ]


def test_foreign_text_is_shown_as_it_is(tuned):
    assert EVIL in "".join(Reader(tuned._repr_html_()).words)
    assert set(Reader(html(EVIL, {EVIL: EVIL}, notes=[EVIL])).words) == {EVIL}


def test_html_says_what_the_result_says(path, tuned, adjusted):
    rows = {page: "".join(Reader(page._repr_html_()).words) for page in (path, tuned, adjusted)}
    assert f"{path.at(0.0).balanced_error:.2%} at 0" in rows[path]
    assert f"{path.best().balanced_error:.2%}, at {path.best().gamma:.3f}" in rows[path]
    assert all(fact in rows[tuned] for fact in tuned.facts().values())
    assert "1..5" in rows[adjusted]  # (1000 / 40)^0.5


def test_a_choice_on_test_data_says_so_in_every_form():
    tuned = lh.tune(LOGITS, LABELS, COUNTS, chosen_on="test")
    assert "TEST DATA" in tuned._repr_html_()
    assert "TEST DATA" in repr(tuned)
    assert "TEST DATA" in tuned.plot().get_title(loc="left")


def test_plain_repr_is_one_line(result):
    words = repr(result)
    assert words.startswith(type(result).__name__ + "(")
    assert "\n" not in words
    assert len(words) < 300


def test_plot_draws_on_the_axes_given_and_changes_no_setting(result):
    figure, axes = pyplot.subplots()
    settings = dict(pyplot.rcParams)
    assert result.plot(axes) is axes
    assert result.plot(ax=axes) is axes
    assert pyplot.get_fignums() == [figure.number]
    assert dict(pyplot.rcParams) == settings
    figure.canvas.draw()  # foreign names, $ included, are not a formula


def test_plot_makes_a_figure_of_its_own_where_no_axes_are_given(result):
    first, second = result.plot(), result.plot()
    assert first.figure is not second.figure
    assert first.get_xlabel()
    assert first.get_ylabel()


def test_the_path_is_drawn_step_by_step(path):
    axes = path.plot(gamma=0.3)
    curves = {patch.get_label(): patch.get_data() for patch in axes.patches}
    for label, curve in (
        ("error", path.error_curve),
        ("balanced error", path.balanced_error_curve),
    ):
        assert np.array_equal(curves[label].values, 100 * curve.values)
        assert np.array_equal(curves[label].edges, np.r_[curve.gammas, 2.0])
    dots = [line.get_xydata() for line in axes.lines if line.get_marker() == "o"]
    expected = [
        [[0.0, 100 * curve.at(0.0)], [0.3, 100 * curve.at(0.3)]]
        for curve in (path.error_curve, path.balanced_error_curve)
    ]
    assert np.allclose(dots, expected)


def test_a_path_that_does_not_hold_zero_has_no_mark_there():
    path = lh.gamma_path(LOGITS, LABELS, COUNTS, range=(0.5, 1.0))
    assert all(len(line.get_xydata()) == 0 for line in path.plot().lines)
    assert "at 0.5" in path._repr_html_()


def test_the_choice_is_drawn_as_recalls_and_precisions_before_and_after(tuned):
    lines = tuned.plot().lines[:4]
    before, after = tuned.tables
    expected = (before.recall, after.recall, before.precision, after.precision)
    for line, values in zip(lines, expected, strict=True):  # the most frequent class is the first
        assert line.get_xdata() == pytest.approx(100 * values)


def test_millions_of_training_samples_are_written_out(tuned):
    many = replace(tuned, counts=(12_345_678, 1_234_567.0, 40.0))
    written = [label.get_text() for label in many.plot().get_yticklabels()]
    assert [label.partition(" (")[2] for label in written] == ["12345678)", "1234567)", "40)"]


def test_norms_are_drawn_before_and_after(adjusted):
    lines = {line.get_label(): line for line in adjusted.plot().lines}
    assert np.array_equal(lines["before"].get_xdata(), COUNTS)
    assert np.allclose(
        lines["after"].get_ydata(), lines["before"].get_ydata() * (1000 / np.array(COUNTS)) ** 0.5
    )


def test_several_layers_are_told_apart():
    norms = {"a": np.ones(3), "b": np.full(3, 2.0)}
    lines = draw_norms(np.array(COUNTS), norms, norms).lines
    assert len({line.get_marker() for line in lines}) == 2
    assert [line.get_label() for line in lines] == [
        "before, a",
        "after, a",
        "before, b",
        "after, b",
    ]


def test_many_classes_are_dots_and_a_running_mean():
    recall = np.r_[np.ones(50), np.zeros(50)]
    recall[10] = np.nan  # a class without a sample
    axes = draw_recall(recall, np.arange(100, 0, -1), after=1 - recall)
    mean = axes.lines[1].get_ydata()
    assert len(axes.patches) == 0
    assert mean[[5, 10, 90]] == pytest.approx([100, 100, 0])
    assert 0 < mean[50] < 100


def test_the_sparkline_marks_gamma_where_it_is():
    svg = sparkline(Curve(np.array([0.0, 1.0]), np.array([0.4, 0.2]), 2.0), 0.5, width=200)
    assert 'd="M50.0 0V48"' in svg


def test_without_matplotlib_a_plot_names_the_extra(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(
        ImportError, match=r"^drawing needs matplotlib; pip install 'matplotlib>=3\.8'$"
    ):
        path.plot()


def test_html_takes_no_plotting_library():
    code = (
        "import sys, numpy as np, levelhead as lh\n"
        "p = lh.gamma_path(np.eye(2) + 1, [0, 1], [9, 1]); p._repr_html_(); repr(p)\n"
        "print('matplotlib' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
