"""What the code writes of the pages itself: commands and their options, methods and their cards, a page of a model."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

from typer.main import get_command

from levelhead.cli import app
from levelhead.core.warnings import LevelheadWarning
from levelhead.methods import METHODS, Method
from levelhead.methods.card import changes, reference
from levelhead.paper.markdown import markdown_table
from levelhead.paper.record import shipped_snapshots
from levelhead.report import of_snapshot
from levelhead.report import write as write_page

ENTRIES = ("Changes", "Formula", "Knobs", "Caveats", "Reference")  # of a card, each at the beginning of a line


def write(folder: Path) -> None:
    """Write what the pages cli.md and methods.md include; a file that would not change is not touched."""
    folder.mkdir(exist_ok=True)
    for name, text in {"commands.md": commands(), "table.md": table(), "cards.md": cards()}.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def write_example(folder: Path) -> None:
    """The page that `levelhead demo` writes of the ResNet-32 that comes with the package, for the site to hold."""
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LevelheadWarning)  # the page shows them
        subject = of_snapshot(shipped_snapshots()["baseline"], title="ResNet-32 on long-tailed CIFAR-10")
        write_page(folder / "example-page.html", [subject], command="levelhead demo")


def commands() -> str:
    """Every command of the command line in Markdown, as the app itself describes it."""
    group: Any = get_command(app)
    root = group.make_context("levelhead", [], resilient_parsing=True)
    return "\n".join(_command(group.get_command(root, name), name, root) for name in group.list_commands(root))


def _command(command: Any, name: str, root: Any) -> str:
    context = command.make_context(name, [], parent=root, resilient_parsing=True)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    records = [each.get_help_record(context) for each in command.get_params(context) if each.name != "help"]
    lines = [f"(command-{name})=", f"## levelhead {name}", "", _escape(command.help or ""), "",
             "```text", usage, "```", ""]
    for title, told in filter(None, records):
        lines += [f"`{title}`", f": {_escape(' '.join(told.split()))}", ""]
    return "\n".join(lines)


def table() -> str:
    """The methods as a table: name, what it changes, and the paper it comes from, as its card has it."""
    rows = [(f"[`{method.name}`](#method-{_anchor(method)})", [_changed(method), method.head, _paper(method)])
            for method in METHODS.values()]
    return markdown_table(["method", "what it changes", "head", "from"], rows) + "\n"


def cards() -> str:
    """The card of every method that has one of its own; `NAME+rs` is NAME's followed by that of RS."""
    own = [method for method in METHODS.values() if not method.name.endswith("+rs")]
    combined = [method for method in METHODS.values() if method.name.endswith("+rs")]
    return "\n".join([*map(_card, own), *map(_combined, combined)])


def _card(method: Method) -> str:
    return "\n".join([*_title(method), *_paragraphs(method.card or ""), ""])


def _combined(method: Method) -> str:
    base, card = METHODS[method.trained_as or method.name], method.card or ""
    after = card.removeprefix((base.card or "").strip()) if base.card else card
    return "\n".join([*_title(method), f"The training of [`{base.name}`](#method-{_anchor(base)}), and then:", "",
                      *_paragraphs(after), ""])


def _title(method: Method) -> list[str]:
    return [f"(method-{_anchor(method)})=", f"### {method.name}", ""]


def _paragraphs(card: str) -> list[str]:
    """A card's first lines as a paragraph, and its `Key: text` entries as a definition list."""
    lines: list[str] = []
    for part in re.split(r"\n(?=\S)", card.strip()):
        words = " ".join(part.split())
        key, _, rest = words.partition(": ")
        if key in ENTRIES:
            lines += [key, f": {_escape(rest)}", ""]
        elif words:
            lines += [_escape(words), ""]
    return lines


def _changed(method: Method) -> str:
    told = [f"*{slot}*: {_escape(what)}" for slot, what in changes(method).items()]
    return "; ".join(told) or "nothing"


def _paper(method: Method) -> str:
    """The reference of its card; of a training with RS after it, that of the training too, if it is not the plain one.
    """
    base = METHODS.get(method.trained_as or "", method)
    papers = [reference(base)] if base is not method and changes(base) else []
    return _escape("; ".join(paper.rstrip(".") for paper in [*papers, reference(method)]))


def _anchor(method: Method) -> str:
    return method.name.replace("+", "-")


def _escape(text: str) -> str:
    """Text for Markdown: what is code stays so, elsewhere nothing is taken for markup."""
    code = re.split(r"(``.+?``|`.+?`)", text, flags=re.S)
    return "".join(part if i % 2 else re.sub(r"([\\*_<>|\[\]])", r"\\\1", part) for i, part in enumerate(code))
