"""How fast is it? Run the parts of this room one after another, and write docs/speed.md: `make bench`.

    python -m bench.speed [PART ...]
    python -m bench.speed --page       # the page alone, from results/

Without names, all parts but those that need a GPU are run; each writes to results/. On a GPU: tune_gpu and path_gpu.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from .page import write_page

ROOT = Path(__file__).parents[2]
PARTS = ("startup", "wvn", "path", "waiting", "onnx_edit", "files", "report")
ON_A_GPU = ("path_gpu", "tune_gpu")


def main() -> None:
    """Run the parts that are named, or all, say what each took, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = (*PARTS, *ON_A_GPU)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(names))
    parser.add_argument("--page", action="store_true", help="write the page, measure nothing")
    options = parser.parse_args()
    unknown = set(options.parts) - set(names)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; expected some of {', '.join(names)}")
    parts = options.parts or PARTS
    if options.page:
        parts = ()
    # Each in a process of its own: some limit their threads, or measure their memory.
    for name in parts:
        print(f"== {name}", flush=True)
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", f"bench.speed.{name}"], cwd=ROOT, check=True)
        print(f"== {name}: {time.perf_counter() - began:.0f} s", flush=True)
    write_page()


if __name__ == "__main__":
    main()
