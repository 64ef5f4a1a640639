"""The blocks of docs/places.md that are written from results/census.json and results/zoo.json."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from levelhead_lab.paper.markdown import fill

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "places.md"
VERDICTS = ("right", "refused rightly", "refused wrongly", "wrong")
FORMATS = {
    ".onnx": "ONNX",
    ".safetensors": "safetensors",
    ".keras": "Keras 3",
    ".h5": "Keras, HDF5",
    ".hdf5": "Keras, HDF5",
    ".pt": "PyTorch",
    ".pth": "PyTorch",
    ".ckpt": "PyTorch",
    ".tar": "PyTorch",
    ".npz": "MLX, or arrays of numpy",
}

# What is said above the table of each list of files.
SENTENCES = {
    "files": (
        "{files} model files of {packages} packages, adjusted, compared in onnxruntime where it runs them, and undone; "
        "`bench/zoo/files.toml` says what is right for each. After what they found was mended:"
    ),
    "held_out": (
        "{files} other files of {packages} other packages: `bench/zoo/held_out.toml` says what each is, and what is "
        "right for it was decided before levelhead saw it; where its answer changed the list ({changed} entries) or "
        "the code ({mended}), the entry says so. {classifiers} are classifiers in a format that is read: {run} were "
        "run before and after by onnxruntime or Keras, and {named} are adjusted once `--head` names a layer that the "
        "refusal lists. All others must be refused:"
    ),
}


def write_page(results: Path = ROOT / "results", page: Path = PAGE) -> None:
    """Fill the blocks of the page from the records in a folder."""
    for name, content in page_blocks(results).items():
        fill(page, name, content)


def page_blocks(results: Path) -> dict[str, str]:
    """Return what belongs into the page, by the name of its place there."""
    census = json.loads((results / "census.json").read_text(encoding="utf-8"))
    files = json.loads((results / "zoo.json").read_text(encoding="utf-8"))
    return {
        "census": census_sentence(census["summary"]),
        "places": places_table(census["places"]["rows"]),
        "zoo": files_table(files),
    }


def census_sentence(summary: dict[str, Any]) -> str:
    """Return the result in words."""
    judged = {library: counted["judged"] for library, counted in summary.items()}
    roads = [
        road
        for counted in summary.values()
        for name, road in counted["roads"].items()
        if name != "example"
    ]
    return (
        f"In {judged['transformers']} classes of transformers and {judged['timm']} models of timm's "
        f"{summary['timm']['families']} families, built small and judged by what their logits do after the edit, "
        f"{sum(road.get('wrong', 0) for road in roads)} wrong layers were edited; "
        f"{max(counted['roads']['counts'].get('refused', 0) for counted in summary.values())} models were refused with "
        "their candidates, and found with an example input (`results/census.json`)."
    )


def places_table(rows: dict[str, Any]) -> str:
    """Return the places by library, and what is refused with the beginning of its reason."""
    right: dict[str, list[str]] = {}
    for name, row in rows.items():
        if row["verdict"] == "right":
            right.setdefault(row["library"], []).append(name)
    lines = ["| made with | right |", "|---|---|"]
    lines += [f"| {library} | {'; '.join(names)} |" for library, names in right.items()]
    lines += ["", "| refused | why |", "|---|---|"]
    for name, row in rows.items():
        if row["verdict"] != "right":
            title = name if row["verdict"] == "refused" else f"{name}: **{row['verdict']}**"
            # Only the first half of a sentence: without lists of layers, shapes and the file's
            # name.
            reason = re.sub(
                r" \([^()]*\)| \[[^]]*\]|^\S+\.\w+: |, which do not.*",
                "",
                row["detail"].partition(";")[0],
            )
            lines.append(f"| {title} | {reason} |")
    return "\n".join(lines)


def files_table(result: Mapping[str, Any]) -> str:
    """Return what came of the files of each list, in sentences and tables in Markdown."""
    blocks = []
    for table, sentence in SENTENCES.items():
        rows = [row for row in result["models"] if row["table"] == table]
        if rows:
            blocks.append(f"{sentence.format(**_facts(rows))}\n\n{_by_format(rows)}")
    return "\n\n".join(blocks)


def _facts(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Return what the sentence above a table says of its files."""
    with_head = [row for row in rows if "head" in row["expected"]]
    return {
        "files": len(rows),
        "packages": len({row["package"] for row in rows}),
        "changed": sum("changed" in row["expected"] for row in rows),
        "mended": sum("mended" in row["expected"] for row in rows),
        "classifiers": len(with_head),
        "named": sum("without a name" in row for row in with_head),
        "run": sum(row.get("seen", "").startswith("logits") for row in with_head),
    }


def _by_format(rows: list[dict[str, Any]]) -> str:
    """Return a table of how many files of each format came to which end."""
    counted = Counter(
        (FORMATS.get(Path(row["file"]).suffix, "others"), row["verdict"]) for row in rows
    )
    lines = [f"| files | {' | '.join(VERDICTS)} |", f"|---|{'---|' * len(VERDICTS)}"]
    for kind in sorted({kind for kind, _ in counted}):
        numbers = " | ".join(str(counted[kind, name]) for name in VERDICTS)
        lines.append(f"| {kind} | {numbers} |")
    return "\n".join(lines)
