"""How the networks were trained: the settings of each data set, what all of them cost, and which are not there yet.

`setup_table` reads the settings from the trainings themselves (`trainings`), not from a list beside them, so that the
page cannot say anything else than what is trained. `cost_table` adds up what the records say. `read_json` reads the
other files of results/ for `page`.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ..lab.recipe import Recipe
from ..runs.spec import Spec
from .cells import Record
from .markdown import markdown_table
from .measured_fields import Rounding
from .tables import DATA_TITLES, without_recipe
from .trainings import trainings

# Fields of a recipe, in the order of the table.
SETTINGS = (
    "batch", "lr", "momentum", "weight_decay", "schedule", "milestones", "lr_decay", "warmup", "pad", "flip",
)  # fmt: skip
STEMS = {"small": "3x3", "half": "3x3, stride 2", "imagenet": "7x7, stride 2, then pooled"}
SHORTCUTS = {"A": "zeros", "pool": "pooled, zeros", "B": "1x1 convolution and batch norm"}


def setup_table() -> str:
    """Return the settings of Tables 1 and 2, a column for all data sets that share them.

    A row is a setting: network, first layer, recipe and its fields. Only Tables 1 and 2 are asked, by our own recipes;
    those of sources are described on the page where their rows are.
    """
    specs = [training.spec for training in [*trainings("table1"), *trainings("table2")]]
    settings = {}
    for data in DATA_TITLES:
        settings[data] = _settings([spec for spec in specs if spec.data == data])
    # Data sets with equal settings share a column: those of both CIFARs are the same.
    columns: dict[tuple[str, ...], list[str]] = {}
    for data, values in settings.items():
        columns.setdefault(tuple(values.values()), []).append(DATA_TITLES[data])
    # All have the same titles, in the same order.
    titles = list(next(iter(settings.values())))
    rows = []
    for i, title in enumerate(titles):
        rows.append((title, [column[i] for column in columns]))
    return markdown_table(["", *(", ".join(sets) for sets in columns.values())], rows)


def _settings(specs: Sequence[Spec]) -> dict[str, str]:
    """Return the settings that the trainings of a data set share, and all numbers of epochs.

    Args:
        specs: of all trainings of one data set by our recipes.

    Returns:
        By title, in the order of the rows of the table, each setting as text.
    """
    # They differ in method, ratio, seed and, on Tiny ImageNet, in epochs: any of them stands for the rest.
    spec = specs[0]
    recipe = spec.resolve_recipe()
    epochs = dict.fromkeys(str(other.resolve_recipe().epochs) for other in specs)
    settings = {
        "network": spec.resolve_net(),
        "first layer": STEMS[spec.stem],
        "shortcut": SHORTCUTS[spec.shortcut],
        "head": "linear, without a bias; cosine for LDAM",
        "precision": spec.dtype,
        "recipe": recipe.name,
        "epochs": ", ".join(epochs),
    }
    for key in SETTINGS:
        settings[key.replace("_", " ")] = _setting_text(recipe, key)
    return settings


def _setting_text(recipe: Recipe, key: str) -> str:
    """Return a field of a recipe as the table shows it: nothing where it has no effect.

    >>> from levelhead_lab.lab.recipe import find_recipe
    >>> _setting_text(find_recipe("kim2020"), "milestones"), _setting_text(find_recipe("kim2020"), "flip")
    ('80, 150', 'yes')
    """
    value = asdict(recipe)[key]
    # Without milestones the rate never falls by steps.
    if key == "lr_decay" and not recipe.milestones:
        return ""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if value is True:
        return "yes"
    if value is False:
        return "no"
    return str(value)


def cost_table(records: Sequence[Record]) -> str:
    """Return what the networks cost in epochs and hours, on what they were trained, and which are missing.

    Hours are those of a device, with many networks at a time on it: by itself a network would take longer than its
    share.
    """
    if not records:
        return "No network has a record yet."
    rows = []
    for data, title in DATA_TITLES.items():
        of_data = [record for record in records if _data(record["column"]) == data]
        if of_data:
            rows.append((title, _spent(of_data)))
    # Every record is of one of these sets, so that the last row is their sum.
    rows.append(("all", _spent(records)))
    head = ["", "networks", "epochs in all", "hours", "records without a hash"]
    # Below the table: on what, with what, and what is not there yet.
    devices = ", ".join(sorted({str(record["device"]) for record in records}))
    torches = {record["versions"]["torch"] for record in records if "torch" in record["versions"]}
    versions = ", ".join(f"torch {version}" for version in sorted(torches))
    return (
        f"{markdown_table(head, rows)}\n\nTrained on: {devices}; {versions}. A record without a "
        "hash is older than the check of its images and labels. Without a record, their cells "
        f"empty or of fewer seeds: {missing_text(records)}."
    )


def missing_text(records: Sequence[Record]) -> str:
    """Return of each table how many of its networks have no record; `none` if all have one.

    A network is found by its name, which has a hash of its settings: a record from before a setting changed does not
    count for the network of today.
    """
    planned = {
        "Table 1": trainings("table1"),
        "Table 2": trainings("table2"),
        "the readings of rows": [*trainings("readings"), *trainings("table2-readings")],
        "the recipes of the sources": [*trainings("sources"), *trainings("table2-sources")],
        "the stronger recipe": trainings("strong"),
        "the recipe frontier": trainings("frontier"),
        "the recipe frontier-long": trainings("frontier-long"),
    }
    # Records made by hand, as in tests, have no name.
    recorded = {record.get("name") for record in records}
    parts = []
    for title, wanted in planned.items():
        lacking = [training for training in wanted if training.name not in recorded]
        if lacking:
            parts.append(f"{len(lacking)} of {len(wanted)} of {title}")
    return ", ".join(parts) or "none"


def rounding_text(rounding: Rounding) -> str:
    """Say by how much a network differs that is trained again among others.

    Networks that were stacked with as many others both times are left out: they are equal, bit for bit.
    """
    differences = []
    for run in rounding["runs"]:
        if run["stacked with, first time"] != run["second time"]:
            first, second = run["error, %"]
            differences.append(abs(first - second))
    return (
        "- **Rounding.** Networks are trained many at once; in other company sums are rounded in "
        "another order, which moves a network like another seed: by "
        f"{sum(differences) / len(differences):.1f} points in the mean of {len(differences)} "
        f"networks of CIFAR-10 at ratio 200, by {max(differences):.1f} at most "
        "(`results/rounding.json`)."
    )


def _data(column: str) -> str:
    """Return the data set of a column; Tiny ImageNet with its classes sorted is the same set.

    >>> _data("cao2019-64/tiny-imagenet-sorted:step:10")
    'tiny-imagenet'
    """
    return without_recipe(column).split(":")[0].removesuffix("-sorted")


def _spent(records: Sequence[Record]) -> list[str]:
    """Return a row of the table of costs: networks, epochs, hours, and records without a hash of their data.

    >>> run = {"identity": {"recipe": {"epochs": 200}}, "seconds": 1800.0, "data_sha256": None}
    >>> _spent([run, run])
    ['2', '400', '1.00', '2']
    """
    epochs = sum(record["identity"]["recipe"]["epochs"] for record in records)
    hours = sum(record["seconds"] for record in records) / 3600
    unhashed = sum(not record.get("data_sha256") for record in records)
    return [str(len(records)), f"{epochs:,}", f"{hours:.2f}", str(unhashed)]


def read_json(path: Path) -> object:
    """Return what a file in results/ holds; None if it is not there.

    These files are ours, from the repository: nothing checks what is in them.
    """
    if path.is_file():
        return json.loads(path.read_text(encoding="utf-8"))
    return None
