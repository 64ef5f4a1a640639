"""The README as the package index shows it, where a path into the repository leads nowhere."""

import re
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

FENCED = re.compile(r"^(```.*?^```[ ]*$)", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"^<!--.*?-->\n+", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]\[]*)\]\((?!https?:|#)(?P<path>[^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):
    """Give the package the README with its relative links completed, or without them where no address is set."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme`, from README.md, the version and the address in project.urls."""
        with open(f"{self.root}/README.md", encoding="utf-8") as file:
            text = file.read()
        with open(f"{self.root}/src/levelhead/_version.py", encoding="utf-8") as file:
            version = file.read().split('"')[-2]
        text = index_page(text, metadata.get("urls", {}).get("Repository", ""), version)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def index_page(text: str, repository: str, version: str) -> str:
    """Return the README for the package index.

    Args:
        text: Markdown, with links relative to the root of the repository.
        repository: its address; empty where it has none, and then links become their text.
        version: links lead to the files of this version, tagged `v<version>`.

    >>> index_page("[Start](docs/start.md), ![a curve](docs/curve.png)", "", "1.0")
    'Start, a curve'
    >>> index_page("[Start](docs/start.md)", "https://example.org/me/it", "1.0")
    '[Start](https://example.org/me/it/blob/v1.0/docs/start.md)'
    """

    def place(found: re.Match[str]) -> str:
        if not repository:
            return found["text"]
        kind = "raw" if found["picture"] else "blob"
        return f"{found['picture']}[{found['text']}]({repository.rstrip('/')}/{kind}/v{version}/{found['path']})"

    parts = FENCED.split(COMMENT.sub("", text))  # code blocks are at the odd places
    return "".join(part if i % 2 else LINK.sub(place, part) for i, part in enumerate(parts))
