"""For tests and doctests: let lightning, timm and transformers import a torchvision built for another torch.

They import it wherever it is installed, and it fails to import where its compiled operators do not load (its wheels are
built for CUDA). It only wants two of them declared; no test of ours calls one.
"""

import os
import signal
from importlib.util import find_spec
from pathlib import Path

from hypothesis import settings

# What lands is judged by the same examples every time; at a desk hypothesis looks for new ones.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# A shell that runs the tests in the background has them ignore Ctrl-C, and so would the commands that they interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

torchvision = find_spec("torchvision")

if torchvision is not None and torchvision.origin is not None:
    import torch

    try:
        for library in Path(torchvision.origin).parent.glob("_C*.so"):
            torch.ops.load_library(library)
    except OSError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

# The GPU's kernels are Triton's, which comes with torch for CUDA alone; test_fit_many.py runs their check.
collect_ignore = ["tests/lab/check_kernels.py"]
if not find_spec("triton"):
    collect_ignore += ["src/levelhead/lab/kernels.py", "src/levelhead/lab/conv_norm.py"]
