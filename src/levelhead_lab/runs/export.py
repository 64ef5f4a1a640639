"""The trained network, with its adjusted head where it was adjusted, as .safetensors and, with onnx, as .onnx.

A run's model.safetensors holds the network as it was trained: a cosine head divides by norms, and
images must be normalized before they go in. What is exported asks nothing of whoever uses it: a
`Classifier` takes raw images, and its head is one linear layer. `classifier` builds it from a run's
folder, `export` writes it, and `load` reads either kind of file back.

The adjustment is not written here. The network is written as trained into a temporary file, and
`levelhead.files` adjusts that file as it would anyone's: so a run's adjusted model has the same note
of what was done as every other.
"""

import json
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from levelhead.core.head import Head
from levelhead.core.tuned import Tuned
from levelhead.files.model import adjust_file
from levelhead.io.safetensors_file import read_header
from levelhead.support import atomic
from levelhead.support.errors import LevelheadError, in_file
from levelhead.support.text import parse_json

from ..lab.nets import build
from ..lab.snapshot import Snapshot
from .run_folder import MODEL_KEY, JsonObject


class Classifier(nn.Module):
    """A network from raw images, uint8 [N, C, H, W], to logits [N, K]: normalization, body and a linear head.

    A cosine head becomes a linear one over unit features: a snapshot's head already holds the weight
    vectors as they act on those.

    Args:
        facts: net, head, shape, mean, std, ..., as in the metadata of a run's model.safetensors.
        bias: whether the head has one. Those of the paper have none; an adjustment may need it.
    """

    def __init__(self, facts: JsonObject, *, bias: bool = False):
        super().__init__()
        channels = [len(facts["mean"]), 1, 1]
        net = build(
            facts["net"],
            len(facts["names"]),
            head="linear",
            shape=tuple(facts["shape"]),
            shortcut=facts["shortcut"],
            stem=facts["stem"],
        )
        self.unit_features = facts["head"] == "cosine"
        # Images are 0 to 255; mean and standard deviation are of pixels from 0 to 1.
        self.register_buffer("mean", 255 * torch.tensor(facts["mean"]).reshape(channels))
        self.register_buffer("std", 255 * torch.tensor(facts["std"]).reshape(channels))
        self.body = net.body
        self.head = nn.Linear(net.head.in_features, len(facts["names"]), bias=bias)  # type: ignore

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, K] of images, uint8 [N, C, H, W]."""
        features = self.body((images.to(self.mean.dtype) - self.mean) / self.std)  # type: ignore[operator]
        if self.unit_features:
            features = F.normalize(features)
        return self.head(features)


def classifier(run_folder: Path, head: Head) -> tuple[Classifier, JsonObject]:
    """Return the network of a run with a head in place of its own, and the facts in its file.

    Args:
        run_folder: of a finished run; the body is read from its model.safetensors.
        head: weight [K, d] and, where there is one, bias [K].

    Raises:
        LevelheadError: if the file is not one that a training wrote, or cannot be read.
    """
    path = run_folder / "model.safetensors"
    facts = _facts(path)
    if facts is None:
        raise LevelheadError(f"{path}: expected a network that `levelhead train` wrote")
    try:
        # The head's own weights are left in the file.
        with safe_open(str(path), framework="pt") as file:
            weights = {}
            for name in file.keys():  # noqa: SIM118
                if name.startswith("body."):
                    weights[name] = file.get_tensor(name)
    except RuntimeError as error:  # torch's, of a file that the disk does not give
        raise LevelheadError(
            f"{path}: cannot be read ({str(error).splitlines()[0]}); try again"
        ) from None
    weights["head.weight"] = torch.as_tensor(head.weight, dtype=torch.float32)
    if head.bias is not None:
        weights["head.bias"] = torch.as_tensor(head.bias, dtype=torch.float32)
    # A run's file has no mean and std among its tensors: they are in its facts.
    return _network(path, facts, weights, kept=("mean", "std")).float(), facts


def export(run_folder: Path, head: Head, tuned: Tuned, *, adjusted: bool) -> list[Path]:
    """Write the model as .safetensors and, where onnx is there, as .onnx; return the files.

    The adjusted model is named after what was done (`adjusted-offsets.safetensors`), so that another rule
    writes another file, and has a note of it. As trained, model.safetensors is there already, and model.onnx
    is written; what the same rule wrote earlier goes.

    Args:
        run_folder: of a finished run.
        head: as trained, weight [K, d].
        tuned: what is done to it.
        adjusted: whether that is done, or the model is written as trained.
    """
    note = None
    if adjusted:
        note = {"rule": tuned.rule, "strength": tuned.strength, "counts": list(tuned.counts)}
        if tuned.adjustment.adds and head.bias is None:  # our own network has room for one
            head = replace(head, bias=np.zeros(head.classes, np.float32))
    # The files as trained, by their ending.
    model, facts = classifier(run_folder, head)
    metadata = {MODEL_KEY: json.dumps({**facts, "adjusted": note})}
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    contents = {".safetensors": to_bytes(tensors, metadata)}
    if find_spec("onnx") is not None:
        contents[".onnx"] = _to_onnx(model, facts["shape"])
    name = adjusted_name(tuned)
    if adjusted:
        return [
            _write_adjusted(run_folder / f"{name}{end}", content, tuned)
            for end, content in contents.items()
        ]
    # Nothing is gained any more by what an earlier call wrote: it would be taken for the result.
    for end in (".safetensors", ".onnx"):
        (run_folder / f"{name}{end}").unlink(missing_ok=True)
    if ".onnx" in contents:
        atomic.write(run_folder / "model.onnx", contents[".onnx"])
    return [run_folder / f"model{end}" for end in contents]


def adjusted_name(tuned: Tuned) -> str:
    """Return the name of the files of an adjusted model: its rule and, where it was given, the strength.

    What held-out samples choose is the same each time, so one name will do; a strength that was given
    may be another the next time, and should not replace the file.
    """
    if tuned.evidence is None and tuned.strength is not None:
        return f"adjusted-{tuned.rule}-{tuned.strength:g}"
    return f"adjusted-{tuned.rule}"


def _write_adjusted(path: Path, content: bytes, tuned: Tuned) -> Path:
    """Write a model as trained to `path`, with its head adjusted.

    Args:
        path: of the file to write.
        content: of the file as trained, in the same format.
        tuned: what is done to its head.
    """
    layer = "head"  # its name
    if path.suffix == ".onnx":
        layer = "logits"  # the output that it feeds
    with tempfile.TemporaryDirectory() as folder:
        trained = Path(folder) / path.name
        trained.write_bytes(content)
        adjust_file(trained, path, tuned, head=layer, original=False, force=True)
    return path


def load(path: str | Path) -> Classifier:
    """Return the network of a model.safetensors or adjusted-*.safetensors that a run wrote, ready to predict.

    Args:
        path: of the file. A model.safetensors must be in its run's folder, as the head, which may be
            a cosine one, is read from the snapshot beside it.

    Raises:
        LevelheadError: if the file is another one, or damaged.
    """
    facts = _facts(Path(path))
    if facts is None:
        raise LevelheadError(
            f"{path}: expected a model.safetensors or adjusted-*.safetensors that `levelhead train` wrote"
        )
    if "adjusted" not in facts:  # model.safetensors: its head may be a cosine one
        snapshot = Snapshot.load(Path(path).with_name("snapshot.safetensors"))
        return classifier(Path(path).parent, snapshot.head)[0]
    return _network(Path(path), facts, from_bytes(Path(path).read_bytes()))


def _network(
    path: Path, facts: JsonObject, weights: dict[str, Tensor], *, kept: Sequence[str] = ()
) -> Classifier:
    """Return a network with these weights, in evaluation mode.

    Args:
        path: of the file that all of it comes from, for the message.
        facts: in the metadata of that file.
        weights: by name, of everything but `kept`.
        kept: buffers that stay as the network made them.

    Raises:
        LevelheadError: if facts and weights do not fit each other: the metadata of a file may say
            anything, so whatever goes wrong in building it means that.
    """
    try:
        model = Classifier(facts, bias="head.bias" in weights)
        model.load_state_dict(weights | {name: getattr(model, name) for name in kept})
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise LevelheadError(
            f"{path}: its network is not as it was written ({reason}); copy it again"
        ) from None
    return model.eval()


def _facts(path: Path) -> JsonObject | None:
    """Return what a run wrote into the metadata of a model; None for other files.

    Only the header is read: the file may be large, and may be another one.

    Raises:
        LevelheadError: if the header, or what a run wrote into it, is damaged.
    """
    note = read_header(path).metadata.get(MODEL_KEY)
    if note is None:
        return None
    with in_file(path):
        facts = parse_json(note)
    if not isinstance(facts, dict):
        return None
    return facts


def _to_onnx(model: Classifier, shape: list[int]) -> bytes:
    """Return the network as an ONNX file: `images`, uint8 [n, C, H, W], to `logits` [n, K].

    The number of images is free: it is the named axis `n`.

    Args:
        model: in evaluation mode.
        shape: (C, H, W) of an image.
    """
    example = torch.zeros(2, *shape, dtype=torch.uint8)
    axes = {"images": {0: "n"}, "logits": {0: "n"}}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # By the exporter that needs no other package; the newer one imports onnxscript.
        warnings.simplefilter("ignore", DeprecationWarning)
        file = Path(folder) / "model.onnx"
        torch.onnx.export(
            model,
            (example,),
            file,
            dynamo=False,
            input_names=["images"],
            output_names=["logits"],
            dynamic_axes=axes,
        )
        return file.read_bytes()
