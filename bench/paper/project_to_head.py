"""The two networks that come with the package, made from the whole ones: `python -m bench.paper.project_to_head`."""

from pathlib import Path

import numpy as np

from levelhead.core.head import Head
from levelhead_lab.lab.snapshot import Snapshot
from levelhead_lab.paper.record import whole_snapshots


def project_to_head(snapshot: Snapshot) -> Snapshot:
    """Return the same classifier in as few features as it has classes, for the test images alone.

    ``W = R^T Q`` with orthonormal rows of Q, so that ``W h = R^T (Q h)``: logits, norms and angles of the weight
    vectors stay as they are. What is lost is the part of a feature that the head does not see.

    >>> whole = Snapshot(Head(np.array([[0.0, 3.0, 4.0]] * 2)), [2, 1], {"test": [[1.0, 2.0, 3.0]]}, {"test": [0]})
    >>> small = project_to_head(whole)
    >>> small, small.logits("test").round(4).tolist(), small.head.norms.round(4).tolist()
    (Snapshot(2 classes of 2 to 1 training samples, head [2, 2]; test 1), [[18.0, 18.0]], [5.0, 5.0])
    """
    head = snapshot.head.numpy()
    q, r = np.linalg.qr(np.asarray(head.weight, np.float64).T)
    features = (np.asarray(snapshot.features["test"], np.float64) @ q).astype(np.float32)
    labels = snapshot.labels["test"].astype(np.uint8)
    projected = Head(r.T.astype(np.float32), head.bias, head.names)
    return Snapshot(projected, snapshot.counts, {"test": features}, {"test": labels}, snapshot.meta)


if __name__ == "__main__":
    root = Path(__file__).parents[2]
    for method, whole in whole_snapshots(root / "results" / "networks").items():
        project_to_head(whole).save(
            root / "src" / "levelhead_lab" / "paper" / f"cifar10-100-{method}.safetensors"
        )
