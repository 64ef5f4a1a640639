"""Two real classifiers whose training nobody counted, and samples that they were not trained on.

- `languages`: py3langid says in which of 12 languages a text is. The texts are names of countries, languages and
  currencies, four to a text, from the locale data of Babel.
- `file_types`: magika says of which of 12 types a file is. The files are those of the packages that are installed here,
  and it sees eight lines out of their middle.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

import levelhead as lh

MOST = 80  # samples of each class
LANGUAGES = ["da", "de", "en", "es", "fr", "id", "it", "ms", "nl", "nn", "pt", "sv"]
SUFFIXES = {
    "c": ".c",
    "cpp": ".hpp .cpp .cc",
    "css": ".css",
    "html": ".html",
    "javascript": ".js",
    "json": ".json",
    "markdown": ".md",
    "python": ".py",
    "rst": ".rst",
    "toml": ".toml",
    "txt": ".txt",
    "yaml": ".yaml .yml",
}


class Scored(NamedTuple):
    names: list[str]
    scores: np.ndarray  # [N, K], log-probabilities
    labels: np.ndarray  # [N]
    of_nothing: np.ndarray  # [K], the scores of texts without content, on average


def languages() -> Scored:
    """Return the scores of py3langid."""
    import py3langid
    from babel import Locale

    py3langid.set_languages(LANGUAGES)
    rng = np.random.default_rng(0)
    texts = []
    for language in LANGUAGES:
        locale = Locale(language)
        lists = (locale.territories, locale.languages, locale.currencies)
        names = sorted({name for each in lists for name in each.values()})
        rng.shuffle(names)
        texts.append([", ".join(names[i : i + 4]) for i in range(0, len(names) - 3, 4)])

    def score(text: str) -> list[float]:
        by_language = dict(py3langid.rank(text))
        return [by_language[language] for language in LANGUAGES]

    return scored(LANGUAGES, texts, score, ["", "N/A", "..."])


def file_types() -> Scored:
    """Return the scores of magika's model, which is an ONNX file in its wheel."""
    import onnxruntime

    (model,) = Path(find_spec("magika").origin).parent.glob("models/*/model.onnx")
    known = json.loads((model.parent / "config.min.json").read_text())["target_labels_space"]
    columns = [known.index(name) for name in SUFFIXES]
    session = onnxruntime.InferenceSession(model)

    def score(piece: bytes) -> np.ndarray:
        # Its first 1,024 bytes and its last ones; 256 is no byte, where there are fewer.
        head, tail = list(piece.strip()[:1024]), list(piece.strip()[-1024:])
        row = [*head, *[256] * (2048 - len(head) - len(tail)), *tail]
        (shares,) = session.run(["target_label"], {"bytes": [row]})
        return np.log(np.maximum(shares[0, columns], 1e-30))

    paths = sorted(Path(find_spec("numpy").origin).parents[1].rglob("*.*"))
    rng = np.random.default_rng(0)
    pieces = []
    for suffixes in SUFFIXES.values():
        pieces.append(pieces_of([path for path in paths if path.suffix in suffixes.split()], rng))
    return scored(list(SUFFIXES), pieces, score, [b"N/A", b"...", b"        "])


def pieces_of(paths: list[Path], rng: np.random.Generator) -> list[bytes]:
    """Return eight lines out of the middle of each file; of few files, more from each."""
    rng.shuffle(paths)
    pieces = []
    for path in paths[:MOST]:
        lines = path.read_bytes().splitlines()
        for _ in range(-(-MOST // len(paths))):
            start = int(rng.integers(max(1, len(lines) - 8)))
            piece = b"\n".join(lines[start : start + 8])[:600]
            if len(piece.strip()) >= 40:
                pieces.append(piece)
    return pieces


def scored(names, samples, score, nothing) -> Scored:
    """Return the scores of the first samples of each class."""
    labels = np.repeat(np.arange(len(names)), [len(each[:MOST]) for each in samples])
    scores = np.array([score(sample) for each in samples for sample in each[:MOST]])
    return Scored(names, scores, labels, np.mean([score(text) for text in nothing], axis=0))


def draw(labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows to hold out and others, with the same long tail: 40 of one class, 4 of another."""
    rng = np.random.default_rng(seed)
    sizes = rng.permutation(lh.counts.long_tail(40, 12, 10))
    halves = [], []
    for k, size in enumerate(sizes):
        rows = rng.permutation(np.flatnonzero(labels == k))
        halves[0].extend(rows[: min(size, len(rows) // 2)])
        halves[1].extend(rows[-min(size, len(rows) // 2) :])
    return np.array(halves[0]), np.array(halves[1])
