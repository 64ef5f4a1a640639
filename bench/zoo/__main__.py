"""Is the right head found? Run the parts of this room one after another, and write docs/places.md: `make zoo`.

    python -m bench.zoo [PART ...]
    python -m bench.zoo --page     # the page alone, from results/

places: every kind of place that a head can live in, made here; a minute. census: the models of transformers and timm,
built small; hours. files: model files that others published, downloaded once. Each part writes to results/.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from .page import ROOT, write_page

PARTS = {"places": ["census", "--places"], "census": ["census"], "files": ["files"]}


def main() -> int:
    """Run the parts that are named, or all, and write the page; return 1 if one found a wrong edit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--page", action="store_true", help="write the page, judge nothing")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; expected some of {', '.join(PARTS)}")
    parts = () if options.page else options.parts or tuple(PARTS)
    wrong = False
    for name in parts:
        module, *words = PARTS[name]
        command = [sys.executable, "-m", f"bench.zoo.{module}", *words]
        wrong |= subprocess.run(command, cwd=ROOT, check=False).returncode != 0
    write_page()
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
