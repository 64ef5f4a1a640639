"""Tag the names of functions, classes and arguments in Python's own modules, `def` and `class` hidden."""

import ast
import email
import http
import io
import json
import pathlib
import tokenize
import unittest
import zlib

import numpy as np
from sklearn.linear_model import LogisticRegression


def tagged(path):
    text, named = path.read_text(encoding="utf-8"), {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            named[node.lineno, node.name] = 1
        elif isinstance(node, ast.ClassDef):
            named[node.lineno, node.name] = 2
        elif isinstance(node, ast.arg):
            named[node.lineno, node.arg] = 3
    lines = {}
    for t in tokenize.generate_tokens(io.StringIO(text).readline):
        if t.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER) and t.string not in (
            "def",
            "class",
            "async",
        ):
            lines.setdefault(t.start[0], []).append(
                (t.string, named.get((t.start[0], t.string), 0))
            )
    return list(lines.values())


def shape(word):
    return [
        word[:1].isupper(),
        "_" in word,
        word.isidentifier(),
        len(word) / 10,
        *(word == sign for sign in "(),:.="),
    ]


def features(line):
    words, rows = [word for word, _ in line], []
    for i, word in enumerate(words):
        own = np.zeros(64)
        for pair in zip("^" + word, word + "$", strict=True):
            own[zlib.crc32("".join(pair).encode()) % 64] = 1
        near = [
            shape(words[j]) if 0 <= j < len(words) else [0] * 10
            for j in (i - 2, i - 1, i + 1, i + 2)
        ]
        rows.append(np.concatenate([own, shape(word), *near, [i == 0, i == 1]]))
    return np.array(rows, float)


files = sorted(
    p for m in (json, email, http, unittest) for p in pathlib.Path(m.__file__).parent.glob("*.py")
)
parts = [[line for path in files[i::3] for line in tagged(path)] for i in range(3)]
train = np.array([kind for line in parts[0] for _, kind in line])
tagger = LogisticRegression(max_iter=300).fit(
    np.concatenate([features(line) for line in parts[0]]), train
)
counts = np.bincount(train)


def padded(lines, longest=24):
    logits, labels = np.zeros((len(lines), longest, 4)), np.full((len(lines), longest), -100)
    for i, line in enumerate(lines):
        scores = tagger.decision_function(features(line))[:longest]
        logits[i, : len(scores)], labels[i, : len(scores)] = (
            scores,
            [kind for _, kind in line][:longest],
        )
    return logits, labels


(logits, labels), (new_logits, new_labels) = padded(parts[1][::6]), padded(parts[2])
