"""Our scikit-learn classifiers as ONNX, by skl2onnx: `register()` once, then `to_onnx` as for any other classifier.

skl2onnx calls `_convert` for one of ours. It lets skl2onnx convert the classifier inside (`_scores`), and adds the
nodes that do to its scores what `Tuned.apply` does, and then what `predict` and `predict_proba` do.

The graph that comes out: INPUT -> the classifier inside -> scores [N, K] -> (Exp, Add, Log) -> (Mul) -> (Add) -> ArgMax
-> label; and from the adjusted scores, Div by the temperature -> Softmax -> probabilities. Nodes in brackets are there
only where the adjustment has such a part.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ..support.errors import LevelheadError
from ..support.extras import naming_what_is_missing

with naming_what_is_missing():
    from sklearn.frozen import FrozenEstimator

    from ..heads.sklearn import Classifier, innermost
    from .sklearn import AdjustedClassifier, AdjustedClassifierCV

if TYPE_CHECKING:
    from skl2onnx.common._container import ModelComponentContainer
    from skl2onnx.common._topology import Operator, Scope, Variable

Attribute: TypeAlias = Any  # of a node: a number, a text, a list of either
# What users may ask of classifiers, as skl2onnx has it: a dict for each row, columns, no class names.
OPTIONS = {
    "zipmap": [True, False, "columns"],
    "output_class_labels": [False, True],
    "nocl": [True, False],
}


def register() -> None:
    """Register a converter for AdjustedClassifier and AdjustedClassifierCV with skl2onnx.

    After it, ``skl2onnx.to_onnx(model, X[:1])`` writes them, alone or as a step of a pipeline. The first output is what
    `predict` returns. The second is `predict_proba` or, around a classifier without it, the adjusted scores [N, K]. A
    classifier with a `decision_function` must be one that skl2onnx can convert with `raw_scores`. Numbers are those of
    ONNX, float32 unless the input is float64. Calling it a second time does no harm.

    Raises:
        ImportError: skl2onnx is not installed.

    Example:
        ``register()``, then ``onnx.save(skl2onnx.to_onnx(adjusted, X[:1]), "adjusted.onnx")``.
    """
    from skl2onnx import update_registered_converter
    from skl2onnx.common.shape_calculator import _calculate_linear_classifier_output_shapes

    def shapes(operator: "Operator") -> None:
        _calculate_linear_classifier_output_shapes(operator, enable_type_checking=False)

    for kind in (AdjustedClassifier, AdjustedClassifierCV):
        name = f"Levelhead{kind.__name__}"
        update_registered_converter(kind, name, shapes, _convert, options=OPTIONS, overwrite=True)


def _scores(
    scope: "Scope", operator: "Operator", container: "ModelComponentContainer"
) -> "Variable":
    """Let skl2onnx convert the classifier inside, and return the variable of its scores.

    What is converted is asked for by options, which skl2onnx keeps by the identity of a model: both the scope, which
    is still being parsed, and the container, which is then converted, must have them.

    Raises:
        LevelheadError: skl2onnx can only give this classifier's probabilities, and it was tuned on decision values.
    """
    from skl2onnx._parse import _parse_sklearn

    model = operator.raw_operator
    inside = _thawed(model.estimator_)
    final = innermost(model.estimator_)
    allowed = scope._get_allowed_options(final, fail=False) or ()
    raw = model._kind == "logits"
    if raw and "raw_scores" not in allowed:
        instead = "use a classifier that it can, such as LogisticRegression, or one that gives only probabilities"
        raise LevelheadError(
            f"skl2onnx cannot give the raw scores of {type(final).__name__}; {instead}"
        )
    # A table of numbers, not a dict for each row; and decision values instead of probabilities.
    wanted = {}
    if "zipmap" in allowed:
        wanted["zipmap"] = False
    if raw:
        wanted["raw_scores"] = True
    scope.add_options(id(final), wanted)
    container.add_options(id(final), wanted)
    _, scores, *_ = _parse_sklearn(scope, inside, operator.inputs)
    return scores


def _convert(scope: "Scope", operator: "Operator", container: "ModelComponentContainer") -> None:
    """Write the raw scores of the classifier inside, then ``scale_k s_k + offset_k``, argmax and softmax.

    Args:
        scope: gives names that are not taken yet.
        operator: our classifier (`raw_operator`), with its inputs and its two outputs.
        container: takes nodes and constants.
    """
    from onnx import TensorProto

    model = operator.raw_operator
    source = _scores(scope, operator, container)
    wide = "Double" in type(operator.inputs[0].type).__name__
    number = TensorProto.FLOAT
    dtype = np.float32
    if wide:
        number = TensorProto.DOUBLE
        dtype = np.float64
    classes = model.classes_

    def constant(values: ArrayLike, kind: int = number) -> str:
        """Add a constant to the graph; return its name."""
        name = scope.get_unique_variable_name("levelhead")
        values = np.asarray(values)
        container.add_initializer(name, kind, list(values.shape), values.ravel().tolist())
        return name

    def node(kind: str, *inputs: str, out: str | None = None, **attributes: Attribute) -> str:
        """Add a node to the graph; return the name of its output."""
        name = out or scope.get_unique_variable_name(f"levelhead_{kind}")
        title = scope.get_unique_operator_name(f"levelhead_{kind}")
        container.add_node(kind, list(inputs), [name], name=title, **attributes)
        return name

    # The scores [N, K] of the classifier, as `class_scores` has them.
    scores = source.full_name
    if wide:  # those of trees are float32 all the same
        scores = node("Cast", scores, to=number)
    if model._kind != "logits":
        least = np.finfo(dtype).tiny
        scores = node("Log", node("Max", scores, constant([least])))
    elif len(classes) == 2:  # skl2onnx gives one decision value z or (-z, z); the last column is z
        ends = [constant([n], TensorProto.INT64) for n in (-1, np.iinfo(np.int64).max, 1)]
        scores = node("Mul", node("Slice", scores, *ends), constant([[-0.5, 0.5]]))
    # What `Tuned.apply` does to them.
    adjustment = model.tuned_.adjustment
    adjusted = scores
    if adjustment.smoothing:
        votes = node("Add", node("Exp", adjusted), constant([adjustment.smoothing]))
        adjusted = node("Log", votes)
    if adjustment.multiplies:
        adjusted = node("Mul", adjusted, constant(adjustment.scale))
    if adjustment.adds:
        adjusted = node("Add", adjusted, constant(adjustment.offset))
    # What `predict` returns: the label of the largest. Labels become texts or whole numbers.
    best = node("ArgMax", adjusted, axis=1, keepdims=0)
    if classes.dtype.kind in "UO":
        labels = constant([str(label).encode() for label in classes], TensorProto.STRING)
    else:
        labels = constant(classes.astype(np.int64), TensorProto.INT64)
    chosen = node("ArrayFeatureExtractor", labels, best, op_domain="ai.onnx.ml", op_version=1)
    node("Reshape", chosen, constant([-1], TensorProto.INT64), out=operator.outputs[0].full_name)
    # What `predict_proba` returns; of a classifier without probabilities, the adjusted scores.
    if hasattr(model, "predict_proba"):
        cooled = node("Div", adjusted, constant([model.tuned_.temperature or 1.0]))
        node("Softmax", cooled, out=operator.outputs[1].full_name, axis=1)
    else:
        node("Identity", adjusted, out=operator.outputs[1].full_name)


def _thawed(estimator: Classifier) -> Classifier:
    """Return the classifier in a FrozenEstimator, which skl2onnx does not know; any other as it is."""
    if isinstance(estimator, FrozenEstimator):
        return _thawed(estimator.estimator)
    return estimator
