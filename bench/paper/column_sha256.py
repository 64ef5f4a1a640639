"""Write the sha256 of the data of every column into tables.toml, from the official files.

python -m bench.paper.column_sha256 FOLDER_OF_THE_DATA_SETS
"""

import argparse
from pathlib import Path

from levelhead.support import atomic
from levelhead_lab import paper
from levelhead_lab.paper.tables import sha256_key
from levelhead_lab.paper.trainings import trainings

_TABLES_FILE = Path(paper.__file__).with_name("tables.toml")
_MARK = "# The sha256 of the images and labels of every column, written by bench/paper/column_sha256.py.\n[sha256]\n"


def column_digests(root: str | Path) -> dict[str, dict[str, str]]:
    """Return {column, with `/held` for the companion that holds some out: {split: sha256}} of all tables."""
    digests = {}
    for table in ("table1", "table2", "table2-sources", "sources"):
        for training in trainings(table, root=str(root), seeds=1):
            key = sha256_key(training.column, training.spec.hold_out)
            if key not in digests:
                digests[key] = {
                    title: part.sha256 for title, part in training.spec.load().splits.items()
                }
    return digests


def write_digests(digests: dict[str, dict[str, str]], path: Path = _TABLES_FILE) -> None:
    """Replace the end of tables.toml, from its mark on."""
    kept = path.read_text(encoding="utf-8").partition(_MARK)[0].rstrip("\n")
    rows = [
        f'"{column}" = {{ '
        + ", ".join(f'"{split}" = "{sha256}"' for split, sha256 in splits.items())
        + " }"
        for column, splits in digests.items()
    ]
    atomic.write(path, "\n".join([kept, "", _MARK.rstrip("\n"), *rows, ""]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", help="folder of the data sets")
    write_digests(column_digests(parser.parse_args().root))
