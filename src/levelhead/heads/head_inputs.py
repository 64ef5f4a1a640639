"""What the head of a torch model takes while the model runs, one row for each row of its logits."""

from collections.abc import Callable
from typing import Any

from ..support.errors import LevelheadError

CLOSE = 1e-2  # of the largest logit: half precision rounds this much


class HeadInputs:
    """Watches the head of a model; it is found when the first logits say how many classes there are."""

    def __init__(self, model: Any, layer: Any = None) -> None:
        self.model = model
        self.layer = layer
        self._head: Any = None

    def of(self, run: Callable[[], tuple[Any, Any]]) -> tuple[tuple[Any, Any], Any]:
        """Run the model on a batch; return logits and labels, and the features of its logits, [..., d] as they are."""
        if self._head is None:
            logits, _ = run()
            self._head = self._find(1 if logits.ndim == 1 else logits.shape[-1], logits)
        calls: list[Any] = []
        hook = self._head.register_forward_hook(
            lambda _, inputs, output: calls.append((inputs[0], output))
        )
        try:
            scored = run()
        finally:
            hook.remove()
        if len(calls) != 1:
            reason = f"expected the head to run once for a batch, it ran {len(calls)} times"
            raise LevelheadError(reason, parameter="features")
        inputs, outputs = calls[0]
        return scored, _rows_of_logits(inputs, outputs, scored[0], len(self._head.weight))

    def _find(self, columns: int, logits: Any) -> Any:
        from .torch import TorchModel

        place = TorchModel(self.model)
        sizes = place.sizes()
        channels = logits.shape[1] if logits.ndim > 3 else columns  # classes of pixels come second
        classes = next((size for size in (columns, channels) if size in sizes), None)
        layers = place.find(layer=self.layer, classes=classes)
        if len(layers) > 1:
            reason = f"several layers feed one output: {', '.join(layers)}"
            raise LevelheadError(reason, parameter="features")
        return next(iter(layers.values()))


def _rows_of_logits(inputs: Any, outputs: Any, logits: Any, classes: int) -> Any:
    """Return what the logits come from: the inputs, those at one position of each sample, or their mean."""
    if inputs.ndim == 2 or outputs.shape == logits.shape:  # one for each, whatever follows
        return inputs
    is_convolution = inputs.ndim > 3 or (outputs.ndim == 3 and outputs.shape[-1] != classes)
    if is_convolution:  # [n, d, pixels...]
        inputs = inputs.movedim(1, -1)
        outputs = outputs.movedim(1, -1)
    # [n, positions, d]
    inputs = inputs.flatten(1, -2)
    outputs = outputs.flatten(1, -2)
    wanted = logits.reshape(len(logits), 1, -1)
    if inputs.ndim == 3 and len(inputs) == len(logits) and wanted.shape[-1] == classes:
        if _is_close(outputs.mean(1, keepdim=True), wanted):
            return inputs.mean(1)
        # The token that stands for the sample.
        nearest = (outputs - wanted).abs().amax(-1).argmin(1)
        rows = range(len(inputs)), nearest.tolist()
        if _is_close(outputs[rows][:, None], wanted):
            return inputs[rows]
    reason = f"the model's logits {list(logits.shape)} are not those of single inputs of its head"
    raise LevelheadError(f"{reason}, {list(inputs.shape)}", parameter="features")


def _is_close(outputs: Any, logits: Any) -> bool:
    if outputs.shape != logits.shape:
        return False
    room = CLOSE * float(logits.abs().max())
    return float((outputs - logits).abs().max()) <= room
