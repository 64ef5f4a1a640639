"""Heads in Keras 3 models (`.keras`), proved by the graph in config.json, and their `.weights.h5`, without Keras."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from ..heads.graph import (
    KERAS_ACTIVATIONS,
    KERAS_LINEAR,
    KERAS_POINTWISE,
    GraphHead,
    KerasNode,
    find_keras_heads,
)
from ..heads.notes import Note, note_from_json
from ..support.errors import Advice, LevelheadError, in_file, reported_as
from ..support.regular_file import bytes_at, check_regular_file
from ..support.text import parse_json
from .edits import Edit
from .find import find_layers, several_heads
from .format import Format
from .hdf5 import hdf5_arrays
from .spans import LayerSpans, LocatedHead, Span
from .zip import Archive

MODELS = ("Functional", "Sequential", "Model")
NAME_HEAD_LAYER = Advice("head", None, "to name the layer")
WEIGHTS, CONFIG = "model.weights.h5", "config.json"
MAGIC = b"\nlevelhead note\n"  # behind the end of HDF5, where no reader looks: the note, its length, and these bytes
LONGEST_NOTE = 100_000_000
VARIABLE = re.compile(r"(?:(.*)/)?vars/(\d+)")


def _find(path: Path, *, named: str | None = None, classes: int | None = None) -> LocatedHead:
    """Find the head of a Keras model: by its graph or, of a subclassed model, which has none, among its arrays."""
    stamp, archive = check_regular_file(path, "a Keras model"), _open(path)
    arrays, names = _arrays(archive)
    task, plain, units = None, True, None
    if named is None:
        damaged = "cut short, or not a Keras model ({}); save the model again"
        with in_file(path), reported_as(damaged, BadZipFile, UnicodeDecodeError):
            config = parse_json(archive.unpack(CONFIG).decode())
            head = head_in_config(config, classes)
        if head is not None:
            places, task, plain = _places(names), head.task, head.plain
            places = places or {path: place for path, place, *_ in _walk(config)}
            if lacking := [one for one in head.layers if one not in places]:
                reason = f"its weights have no layer {'/'.join(lacking[0])}"
                raise LevelheadError(f"{path}: {reason}; save the model again with Keras 3")
            named, units = ",".join(places[one] for one in head.layers), head.units
    layers = _find_layers(path, arrays, names, named, classes)
    if units is not None and any(layer.classes != units for layer in layers):
        raise LevelheadError(
            f"{path}: its weights do not fit its config.json; save the model again with Keras 3"
        )
    layers = tuple(replace(layer, task=task, plain=plain) for layer in layers)
    return LocatedHead(path, layers, {path: stamp}, archive.complete, archive.note)


def _arrays(archive: Archive) -> tuple[dict[str, Span], dict[str, str]]:
    if (record := archive.find(WEIGHTS)) is None:
        raise LevelheadError(
            f"{archive.path}: no {WEIGHTS} in it; save the model again with Keras 3"
        )
    if not archive.is_plain(record):
        raise LevelheadError(
            f"{archive.path}: its weights are compressed; save the model again with Keras itself"
        )
    return hdf5_arrays(archive.path, archive.data_at[record.filename], record.file_size)


def _places(names: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """Return {names that lead to a layer: its place in the file}: each group states the name of its layer."""
    stated = {
        key.removesuffix("vars").rstrip("/"): name
        for key, name in names.items()
        if key.endswith("vars")
    }
    found = {}
    for place in stated:
        parts = place.split("/")
        around = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
        found[tuple(stated[one] for one in around if one in stated)] = place
    return found


def _walk(
    config: Mapping[str, Any],
) -> Iterator[tuple[tuple[str, ...], str, int, Mapping[str, Any]]]:
    """Yield each layer, also of models inside: names that lead to it, its place by class, how often it is applied."""
    # Up to Keras 3.3 the groups of a file state no names: a layer's place is its class, numbered in order.
    waiting: list[tuple[tuple[str, ...], str, int, Mapping[str, Any]]] = [((), "", 1, config)]
    while waiting:
        inside, around, times, model = waiting.pop()
        used = Counter[str]()
        for layer in model["config"]["layers"]:
            path, often = (
                (*inside, _name(layer)),
                times * max(1, len(layer.get("inbound_nodes") or ())),
            )
            word = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", str(layer["class_name"]))
            word = re.sub("([a-z])([A-Z])", r"\1_\2", word).lower()
            place = f"{around}layers/{word}" + (f"_{used[word]}" if used[word] else "")
            used[word] += ".ops" not in str(
                layer.get("module")
            )  # an operation between layers has no place
            yield path, place, often, layer
            if _is_own(layer, *MODELS) and "layers" in layer["config"]:
                waiting.append((path, f"{place}/", often, layer))
            elif isinstance(wrapped := layer["config"].get("layer"), Mapping):
                yield (*path, _name(wrapped)), f"{place}/layer", often, wrapped


def _open(path: Path) -> Archive:
    with (
        in_file(path),
        reported_as("cut short, or not a Keras 3 model ({}); save the model again", BadZipFile),
    ):
        return Archive(path, in_folder=False)


def head_in_config(config: Any, classes: int | None) -> GraphHead[tuple[str, ...], None] | None:
    """Return the head of a functional or sequential model, proved by its graph; None for a model without one."""
    try:
        if not _is_own(config, *MODELS) or "layers" not in config["config"]:
            return None
        graph = _ConfiguredGraph({(): config})
        outputs = [((), *one) for one in _outputs(config)]
        fitting, heads = find_keras_heads(outputs, graph.node_of, classes, NAME_HEAD_LAYER)
    except LevelheadError:
        raise
    except (
        LookupError,
        TypeError,
        AttributeError,
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:
        raise LevelheadError(
            f"its config.json is not as Keras writes it ({error!r}); save the model again"
        ) from None
    if len(fitting) > 1:
        raise several_heads(
            ("/".join(path), [head.units]) for head in heads for path in head.layers
        )
    return fitting[0] if fitting else heads[0] if len(heads) == 1 else None


@dataclass(frozen=True)
class _ConfiguredGraph:
    """The models of a config.json by the names of the layers that lead to each; those inside are added on the way."""

    models: dict[tuple[str, ...], Mapping[str, Any]]
    places: dict[tuple[str, ...], dict[str, int]] = field(
        default_factory=dict
    )  # of the layers in each, by name

    @cached_property
    def calls(self) -> Counter[Hashable]:
        """How often the model applies each of its layers, with those of models inside it."""
        found = Counter[Hashable]()
        for path, _, often, layer in _walk(self.models[()]):
            found[_identity(layer, path)] += often
        return found

    def node_of(
        self, value: tuple[tuple[str, ...], str, int, int]
    ) -> KerasNode[tuple[str, ...], None]:
        inside, name, node, index = (
            value  # the names that lead to its model, its layer, node and index
        )
        model = self.models[inside]
        layers = model["config"]["layers"]
        if inside not in self.places:
            self.places[inside] = {_name(one): i for i, one in enumerate(layers)}
        place = self.places[inside][name]
        layer = layers[place]

        def sources() -> list[tuple[tuple[str, ...], str, int, int]]:
            if model["class_name"] != "Sequential":
                return [(inside, *one) for one, _ in _tensors(layer["inbound_nodes"][node])]
            return [(inside, _name(layers[max(place - 1, 0)]), 0, 0)]

        wrapped = layer["config"]["layer"] if _is_own(layer, "TimeDistributed") else layer
        path = (*inside, name) if wrapped is layer else (*inside, name, _name(wrapped))
        settings, title, inner = wrapped["config"], "/".join(path), None
        linear = _is_own(wrapped, *KERAS_LINEAR) and {*settings.get("kernel_size", (1,))} == {1}
        activation = settings.get("activation") or "linear"
        while isinstance(activation, Mapping):
            activation = (
                activation["config"]
                if isinstance(activation["config"], str)
                else activation["class_name"]
            )
        if linear and activation not in KERAS_ACTIVATIONS:
            raise LevelheadError(f"cannot change {title}: its activation is {activation}")
        if linear and (
            settings.get("quantization_config") or "Quantized" in str(settings.get("dtype"))
        ):
            raise LevelheadError(
                f"cannot change {title}: it is quantized; adjust the model before quantizing"
            )
        if linear and settings.get("lora_rank"):
            raise LevelheadError(
                f"cannot change {title}: it has LoRA enabled; save the model without it"
            )
        if _is_own(layer, *MODELS) and "layers" in settings:
            self.models[path] = layer
            inner = (path, *_outputs(layer)[index])
        kind = wrapped["class_name"] if _is_own(wrapped, wrapped["class_name"]) else ""
        if wrapped is not layer and not linear and kind not in KERAS_POINTWISE:
            kind = ""  # it may do anything
        given = [shape for _, shape in _tensors((layer.get("inbound_nodes") or [[]])[node])]
        taken = given[0] if given else (layer.get("build_config") or {}).get("input_shape")
        known = isinstance(taken, list) and all(n is None or isinstance(n, int) for n in taken)
        return KerasNode(
            key=path,
            layer=None,
            name=title,
            type_name=layer["class_name"],
            kind=kind,
            activation=str(activation),
            settings=settings,
            shape=tuple(taken) if known and taken and (wrapped is layer or linear) else None,
            calls=self.calls[_identity(wrapped, path)] if linear else 1,
            units=int(settings.get("units") or settings["filters"]) if linear else None,
            inner=inner,
            sources=sources,
        )


def _is_own(layer: Mapping[str, Any], *kinds: str) -> bool:
    """Return whether a layer is of one of these classes of Keras's own, not one that somebody registered."""
    module = layer.get("module")
    return (
        layer["class_name"] in kinds
        and isinstance(module, str)
        and module.partition(".")[0] == "keras"
    )


def _name(layer: Mapping[str, Any]) -> str:
    """Return the name of a layer; Keras before 3.4 keeps that of an operation outside of its own config."""
    return layer["config"]["name"] if "name" in layer["config"] else layer["name"]


def _identity(layer: Mapping[str, Any], path: tuple[str, ...]) -> Hashable:
    """Return what a layer has in common with all its copies in a config: the number of a shared one, or its path."""
    return path if layer.get("shared_object_id") is None else str(layer["shared_object_id"])


def _outputs(model: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """Return where the outputs of a model come from: layer, node, index."""
    if model["class_name"] == "Sequential":
        return [(_name(model["config"]["layers"][-1]), 0, 0)]
    return list(_references(model["config"]["output_layers"]))


def _references(found: Any) -> Iterator[tuple[str, int, int]]:
    """Yield every (layer, node, index) in what says where tensors come from."""
    if not isinstance(found, Mapping | list | tuple):
        raise TypeError(f"expected a list of layers, got {found!r}")
    if not isinstance(found, Mapping) and len(found) == 3 and isinstance(found[0], str):
        yield found[0], int(found[1]), int(found[2])
        return
    for part in found.values() if isinstance(found, Mapping) else found:
        yield from _references(part)


def _tensors(found: Any) -> Iterator[tuple[tuple[str, int, int], Any]]:
    """Yield where the tensors among the arguments of a call come from, and their shapes."""
    if isinstance(found, Mapping) and found.get("class_name") == "__keras_tensor__":
        for one in _references(found["config"]["keras_history"]):
            yield one, found["config"].get("shape")
        return
    for part in (
        found.values() if isinstance(found, Mapping) else found if isinstance(found, list) else ()
    ):
        yield from _tensors(part)


def _find_in_weights(
    path: Path, *, named: str | None = None, classes: int | None = None
) -> LocatedHead:
    """Find the head in a file of weights: by the name of its layer or of its place, or as the only one that fits."""
    stamps = {path: check_regular_file(path, "weights of Keras")}
    layers = _find_layers(path, *hdf5_arrays(path), named, classes)
    return LocatedHead(path, layers, stamps, _complete_weights, _note_behind(path))


def _find_layers(
    path: Path,
    arrays: Mapping[str, Span],
    names: Mapping[str, str],
    named: str | None,
    classes: int | None,
) -> tuple[LayerSpans, ...]:
    """Find the head among the arrays of a Keras model; it is named as in the model, or by its place in the file."""
    places = []
    for one in [] if named is None else named.split(","):
        keys = [
            key.removesuffix("/vars").removesuffix("vars")
            for key, name in names.items()
            if name == one
        ]
        if len(keys) > 1:
            raise LevelheadError(
                f"{path}: more than one layer is called {one!r}; name its place: {', '.join(keys)}"
            )
        places += keys or [one.replace(".", "/")]
    return find_layers(
        path, _name_variables(arrays), named=",".join(places) or None, classes=classes
    )


def _name_variables(arrays: Mapping[str, Span]) -> dict[str, Span]:
    """Return arrays by what they are in their layer: kernel and bias, or the numbers of a norm; not an optimizer's."""
    layers: dict[str, list[Span]] = defaultdict(list)
    found = {}
    for key, span in arrays.items():
        if (match := VARIABLE.fullmatch(key)) and key.partition("/")[0] != "optimizer":
            layers[match[1] or ""].append(span)
        elif not match:
            found[key] = span
    for layer, group in layers.items():
        ordered = sorted(group, key=lambda span: int(span.key.rpartition("/")[2]))
        first, *rest = (span.shape for span in ordered)
        titles = [f"vars/{i}" for i in range(len(ordered))]
        if len(first) > 1 and rest in ([], [first[-1:]]):
            titles = ["kernel", "bias"]
        elif len(first) == 1 and rest in ([first], [first] * 3):
            titles = ["scale", "bias", "running_mean", "running_var"]
        for title, span in zip(titles, ordered, strict=False):
            key = f"{layer}/{title}" if layer else title
            found[key] = replace(span, key=key)
    return found


def _note_range(path: Path) -> tuple[int, int, int]:
    """Return where a note begins and ends, and where the file does: the first two are its end if there is none."""
    end, size = path.stat().st_size, len(MAGIC) + 8
    tail = bytes_at(path, max(0, end - size), size)
    if len(tail) != size or not tail.endswith(MAGIC):
        return end, end, end
    length = int.from_bytes(tail[:8], "little")
    start = end - len(tail) - length
    return (
        (start, end - len(tail), end) if start > 0 and length <= LONGEST_NOTE else (end, end, end)
    )


def _note_behind(path: Path) -> dict[str, Any] | None:
    start, stop, _ = _note_range(path)
    return note_from_json(bytes_at(path, start, stop - start), path)  # None without one


def _complete_weights(
    source: Path, edits: list[Edit], note: Note | None, names: Mapping[Path, str]
) -> list[Edit]:
    """Return the edits with the note behind the end of the HDF5 file."""
    if note is None:
        return edits
    start, _, end = _note_range(source)
    data = json.dumps(note).encode() if note else b""
    if not data and start == end:
        return edits
    return [
        *edits,
        Edit(start, end - start, data + len(data).to_bytes(8, "little") + MAGIC if data else b""),
    ]


FORMAT = Format(
    "Keras",
    (".keras",),
    _find,
    lambda path: _open(path).note,
    check=lambda path: _arrays(_open(path)),
)
WEIGHTS_FORMAT = Format(
    "Keras weights", (".weights.h5",), _find_in_weights, _note_behind, check=hdf5_arrays
)
