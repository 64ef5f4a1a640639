"""Make an installed torchvision whose compiled operators do not load importable: `make` runs this after installing it.

Lightning, timm and transformers import torchvision wherever it is installed. Its wheels are built for CUDA; next to a
torch for the CPU their operators do not load, and the import stops at two that are then unknown. This appends their
declarations to torchvision's own extension.py, so that what needs no compiled operator works, in every process. A
torchvision that can be imported is left as it is, and so is an environment without one.
"""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

DECLARATIONS = """

# Appended by levelhead's tools/declare_torchvision_operators.py: _meta_registrations.py needs these to be declared.
if not _has_ops():
    for _name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, _name):
            torch.library.define(f"torchvision::{_name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def import_torchvision() -> subprocess.CompletedProcess[str]:
    """Import torchvision in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", "import torchvision"], capture_output=True, text=True, check=False
    )


def main() -> str | None:
    """Return None once torchvision can be imported or is not installed, else what its import ended with."""
    torchvision = find_spec("torchvision")
    if torchvision is None or torchvision.origin is None:
        return None
    tried = import_torchvision()
    if tried.returncode == 0:
        return None
    if "operator torchvision::" in tried.stderr:
        extension = Path(torchvision.origin).parent / "extension.py"
        with extension.open("a", encoding="utf-8") as file:
            file.write(DECLARATIONS)
        tried = import_torchvision()
    return tried.stderr or None


if __name__ == "__main__":
    sys.exit(main())
