"""What the head of a torch model takes while the model runs, one row for each row of its logits.

Offsets for a head without a bias need these features (along.py). `collect` runs the model; a hook
on the head sees its inputs [n, ..., d] and outputs [n, ..., K]. Most heads run once a sample. Where
one runs on every token or pixel and the model then picks one or takes the mean, `_rows_of_logits`
finds out which, by the outputs, and does the same to the inputs.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..support.errors import LevelheadError
from .candidates import LayerChoice
from .evaluating import as_written

if TYPE_CHECKING:
    from torch import Tensor, nn

    from .torch_plain import Editable

CLOSE = 1e-2  # of the largest logit: half precision rounds this much


class HeadInputs:
    """Watches the head of a model.

    It is found when the first logits say how many classes there are; the first batch is run twice
    for that.

    Args:
        model: any torch module.
        layer: the head, if it is not found or not unique.
    """

    def __init__(self, model: "nn.Module", layer: LayerChoice = None) -> None:
        self.model = model
        self.layer = layer
        self._head: Editable | None = None

    def of(
        self, run: Callable[[], tuple["Tensor", "Tensor"]]
    ) -> tuple[tuple["Tensor", "Tensor"], "Tensor"]:
        """Run the model on a batch.

        Args:
            run: runs it; returns logits and labels.

        Returns:
            Logits and labels, and the features of these logits, [..., d] as they are.

        Raises:
            LevelheadError: the head ran more than once, or what it took cannot be matched with the
                logits.
        """
        if self._head is None:
            logits, _ = run()
            self._head = self._find(logits)
        # A hook sees what the head takes, wherever in the model it is called.
        calls: list[tuple[Tensor, Tensor]] = []

        def watch(_: "nn.Module", inputs: tuple["Tensor", ...], output: "Tensor") -> None:
            calls.append((inputs[0], output))

        hook = self._head.register_forward_hook(watch)
        try:
            with as_written():
                scored = run()
        finally:
            hook.remove()
        if len(calls) != 1:
            reason = f"expected the head to run once for a batch, it ran {len(calls)} times"
            raise LevelheadError(reason, parameter="features")
        inputs, outputs = calls[0]
        return scored, _rows_of_logits(inputs, outputs, scored[0], len(self._head.weight))

    def _find(self, logits: "Tensor") -> "Editable":
        """Return the one layer that is the head of a model with such logits.

        The width of the logits settles doubts only if a layer has so many outputs: the model may
        have parted or joined them.
        """
        from .torch import TorchModel

        place = TorchModel(self.model)
        # Classes are the last axis or, of pixels, the second; a single logit may have none.
        likely = [1 if logits.ndim == 1 else logits.shape[-1]]
        if logits.ndim > 3:
            likely.append(logits.shape[1])
        sizes = place.sizes()
        classes = next((size for size in likely if size in sizes), None)
        layers = place.find(layer=self.layer, classes=classes)
        if len(layers) > 1:
            reason = f"several layers feed one output: {', '.join(layers)}"
            raise LevelheadError(reason, parameter="features")
        return next(iter(layers.values()))


def _rows_of_logits(
    inputs: "Tensor", outputs: "Tensor", logits: "Tensor", classes: int
) -> "Tensor":
    """Return what the logits come from, [..., d].

    That is the inputs, those at one position of each sample, or their mean. Which of them is told
    by the head's outputs: the mean of linear outputs is the output of the mean, so that where the
    one gives the logits, the other gives the features.

    Args:
        inputs, outputs: of the head.
        logits: of the model, [n, K] or, of tokens or pixels, as the head gives them.
        classes: K.

    Raises:
        LevelheadError: none of these gives the logits.
    """
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
        # The token that stands for the sample, such as the last: where the outputs are the logits.
        nearest = (outputs - wanted).abs().amax(-1).argmin(1)
        rows = range(len(inputs)), nearest.tolist()
        if _is_close(outputs[rows][:, None], wanted):
            return inputs[rows]
    reason = f"the model's logits {list(logits.shape)} are not those of single inputs of its head"
    raise LevelheadError(f"{reason}, {list(inputs.shape)}", parameter="features")


def _is_close(outputs: "Tensor", logits: "Tensor") -> bool:
    if outputs.shape != logits.shape:
        return False
    room = CLOSE * float(logits.abs().max())
    return float((outputs - logits).abs().max()) <= room
