"""Run a script as two processes: `two_ranks.py SCRIPT FILE` runs `SCRIPT RANK FILE` twice, in forks of
one process.

What the script imports anywhere is imported before, once. Ends with 0 if both do; if one fails, the
other is stopped. torchrun would start both anew, and each would import torch: most of the time of a
test that trains for a moment.
"""

import ast
import gc
import os
import runpy
import signal
import sys
from pathlib import Path


def imports_of(script: Path) -> ast.Module:
    """Return the imports of a script, also those inside functions, in their order."""
    found = [
        node
        for node in ast.walk(ast.parse(script.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    return ast.Module(sorted(found, key=lambda node: node.lineno), [])


def wait_for(ranks: list[int]) -> int:
    """Return 0 once all processes have ended with 0, or the status of the first that did not."""
    while ranks:
        pid, status = os.wait()
        ranks.remove(pid)
        if status:
            for other in ranks:
                os.kill(other, signal.SIGKILL)
            return 1
    return 0


if __name__ == "__main__":
    script, meet = sys.argv[1:]
    gc.disable()
    sys.path[0] = str(Path(script).parent)
    exec(compile(imports_of(Path(script)), script, "exec"), {"__name__": "__main__"})
    if "torch" in sys.modules:
        import torch._dynamo  # noqa: F401, which optimizers and DDP import when they are made
    gc.freeze()  # trainers collect garbage, and what was imported is none
    gc.enable()
    ranks = []
    for rank in range(2):
        ranks.append(os.fork())
        if ranks[-1] == 0:
            sys.argv = [script, str(rank), meet]
            runpy.run_path(script, run_name="__main__")
            break
    else:
        sys.exit(wait_for(ranks))
