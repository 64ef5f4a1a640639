"""The paper's tables as published: columns, rows and numbers, from tables.toml."""

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

DATA_TITLES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny-imagenet": "Tiny ImageNet"}
DATA_SIZES = {
    "cifar10": (5000, 10),
    "cifar100": (500, 100),
    "tiny-imagenet": (500, 200),
}  # largest count, classes
DATA_SIZES["tiny-imagenet-sorted"] = DATA_SIZES["tiny-imagenet"]
REPEATED = (
    "baseline",
    "wvn",
)  # rows with several seeds, and a companion run that holds out 10 % to choose gamma
SAME_WHEN_BALANCED = {  # rows that depend on the counts alone, and the row each equals where all counts are equal
    **dict.fromkeys(("over-sample", "under-sample", "re-weighting", "class-balanced"), "baseline"),
    "ldam-drw": "ldam",
}


@cache
def tables() -> dict[str, Any]:
    return tomllib.loads(
        files("levelhead_lab.paper").joinpath("tables.toml").read_text(encoding="utf-8")
    )


def table1_columns(data: str | None = None, *, imbalanced: bool = False) -> list[str]:
    """Return Table 1's columns, such as `cifar10:100`, of one data set or both, with or without the balanced ones."""
    found = [
        column for column in tables()["table1"]["columns"] if data in (None, column.split(":")[0])
    ]
    return [column for column in found if not (imbalanced and column.endswith(":1"))]


def repeated_methods(table: str) -> Sequence[str]:
    return tables()[table].get("methods", REPEATED)


def source_cells(row: dict[str, Any]) -> dict[str, tuple[str, str, float]]:
    """Return, by the column of Table 1, column, method and published error of a row of `sources`."""
    table = tables()["table1"]
    (of,) = [one["published"] for one in table["rows"] if one["method"] == row["beside"]]
    found = {}
    for i, (column, trained) in enumerate(
        zip(tables()["sources"]["columns"], row["trained"], strict=True)
    ):
        if trained:
            recipe, method = trained.split("/")
            published = (
                row["published"][i] if "published" in row else of[table["columns"].index(column)]
            )
            found[column] = (f"{recipe}/{column}", method, published)
    return found


def column_title(column: str) -> str:
    data, ratio = column.split(":")
    return f"{DATA_TITLES[data]}, ratio {ratio}"


def official_sha256(column: str, hold_out: float) -> dict[str, str] | None:
    """Return the sha256 of each split of a column, as the official files give it; None where it is not known."""
    return tables()["sha256"].get(sha256_key(column, hold_out))


def sha256_key(column: str, hold_out: float) -> str:
    """Return what names the data of a column: no recipe, unless it draws other images."""
    recipe, _, data = column.rpartition("/")
    draws = "subset" in tables()["sources"]["specs"].get(recipe, {})
    return f"{column if draws else data}{'/held' if hold_out else ''}"
