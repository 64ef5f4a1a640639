"""The parts of the pages that come from the code: commands with their options, methods with their cards, a page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from typer.main import get_command

from levelhead.cli import app
from levelhead.report import write as write_page
from levelhead.support.warnings import quiet
from levelhead_lab.demo import hold_out_like_training
from levelhead_lab.methods import METHODS, Method
from levelhead_lab.methods.table import changes, reference
from levelhead_lab.paper.markdown import markdown_table
from levelhead_lab.paper.record import shipped_snapshots
from levelhead_lab.runs.subject import choose, subject_of

ENTRIES = (
    "Changes",
    "Formula",
    "Knobs",
    "Caveats",
    "Reference",
)  # of a card, each at the beginning of a line


def write(folder: Path) -> None:
    """Write what the pages cli.md and studying.md show, but only files that change."""
    folder.mkdir(exist_ok=True)
    for name, text in {"commands.md": commands(), "table.md": table(), "cards.md": cards()}.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


SHOWN = re.compile(r"^<!-- shown: (?P<path>\S+) -->$", re.M)


def show_files(page: str, folder: Path) -> str:
    """Return a page with each file in place of the comment that names it: Markdown as it is, others as code.

    In a clone the comment is not seen, and the link above it leads to the file.
    """

    def content(found: re.Match[str]) -> str:
        path = folder / found["path"]
        text = path.read_text(encoding="utf-8")
        return text if path.suffix == ".md" else f"```python\n{text}```"

    return SHOWN.sub(content, page)


def write_example(folder: Path) -> None:
    """Write the page of the ResNet-32 that comes with the package, as `levelhead demo` does, for the site."""
    folder.mkdir(parents=True, exist_ok=True)
    network = hold_out_like_training(shipped_snapshots()["baseline"])
    with quiet():  # the page shows the warnings
        subject = subject_of(
            network,
            choose(network),
            title="ResNet-32 on long-tailed CIFAR-10",
            facts={"made by": "levelhead demo"},
        )
        write_page(folder / "example-page.html", [subject], command="levelhead demo")


def commands() -> str:
    """Return every command in Markdown, as the app describes it."""
    group: Any = get_command(app)
    root = group.make_context("levelhead", [], resilient_parsing=True)
    return "\n".join(
        _command(group.get_command(root, name), name, root) for name in group.list_commands(root)
    )


def _command(command: Any, name: str, root: Any) -> str:
    context = command.make_context(name, [], parent=root, resilient_parsing=True)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    options = [record for record in command.records(context, "option") if "--help" not in record[0]]
    records = [*command.records(context, "argument"), *options]
    lines = [
        f"(command-{name})=",
        f"## levelhead {name}",
        "",
        _escape(command.help or ""),
        "",
        "```text",
        usage,
        "```",
        "",
    ]
    for title, told in records:
        lines += [f"`{title}`", f": {_escape(' '.join(told.split()))}", ""]
    if shown := [
        line.strip() for line in (command.epilog or "").splitlines() if line.startswith("  ")
    ]:
        lines += ["```sh", *shown, "```", ""]
    return "\n".join(lines)


def table() -> str:
    """Return the table of methods: the name, what it changes, and the paper that its card names."""
    rows = [
        (
            f"[`{method.name}`](#method-{_anchor(method)})",
            [_changed(method), method.head, _paper(method)],
        )
        for method in METHODS.values()
    ]
    return markdown_table(["method", "what it changes", "head", "from"], rows) + "\n"


def cards() -> str:
    """Return the card of every method; that of `NAME+rs` is NAME's followed by that of RS."""
    own = [method for method in METHODS.values() if not method.name.endswith("+rs")]
    combined = [method for method in METHODS.values() if method.name.endswith("+rs")]
    return "\n".join([*map(_card, own), *map(_combined, combined)])


def _card(method: Method) -> str:
    return "\n".join([*_title(method), *_paragraphs(method.card or ""), ""])


def _combined(method: Method) -> str:
    base, card = METHODS[method.trained_as or method.name], method.card or ""
    after = card.removeprefix((base.card or "").strip()) if base.card else card
    return "\n".join(
        [
            *_title(method),
            f"The training of [`{base.name}`](#method-{_anchor(base)}), and then:",
            "",
            *_paragraphs(after),
            "",
        ]
    )


def _title(method: Method) -> list[str]:
    return [f"(method-{_anchor(method)})=", f"### {method.name}", ""]


def _paragraphs(card: str) -> list[str]:
    """Return a card's first lines as a paragraph, and its `Key: text` entries as a definition list."""
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
    """Return the reference of a card; with RS after a training that is not plain, that of the training too."""
    base = METHODS.get(method.trained_as or "", method)
    papers = [reference(base)] if base is not method and changes(base) else []
    return _escape("; ".join(paper.rstrip(".") for paper in [*papers, reference(method)]))


def _anchor(method: Method) -> str:
    return method.name.replace("+", "-")


def _escape(text: str) -> str:
    """Escape text for Markdown, except what is code."""
    code = re.split(r"(``.+?``|`.+?`)", text, flags=re.S)
    return "".join(
        part if i % 2 else re.sub(r"([\\*_<>|\[\]])", r"\\\1", part) for i, part in enumerate(code)
    )
