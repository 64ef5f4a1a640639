"""Our scikit-learn classifiers as ONNX, by skl2onnx: `register()` once, then `to_onnx` as for any other classifier."""

from typing import Any

import numpy as np

from ..support.errors import LevelheadError
from ..support.extras import naming_what_is_missing

with naming_what_is_missing():
    from sklearn.frozen import FrozenEstimator

    from ..heads.sklearn import innermost
    from .sklearn import AdjustedClassifier, AdjustedClassifierCV

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
    ONNX, float32 unless the input is float64.
    """
    from skl2onnx import update_registered_converter
    from skl2onnx.common.shape_calculator import _calculate_linear_classifier_output_shapes

    def shapes(operator: Any) -> None:
        _calculate_linear_classifier_output_shapes(operator, enable_type_checking=False)

    for kind in (AdjustedClassifier, AdjustedClassifierCV):
        name = f"Levelhead{kind.__name__}"
        update_registered_converter(kind, name, shapes, _convert, options=OPTIONS, overwrite=True)


def _scores(scope: Any, operator: Any, container: Any) -> Any:
    """Let skl2onnx convert the classifier inside, and return the variable of its scores."""
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
    wanted = ({"zipmap": False} if "zipmap" in allowed else {}) | (
        {"raw_scores": True} if raw else {}
    )
    for each in (scope, container):
        each.add_options(id(final), wanted)
    _, scores, *_ = _parse_sklearn(scope, inside, operator.inputs)
    return scores


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Write the raw scores of the classifier inside, then ``scale_k s_k + offset_k``, argmax and softmax."""
    from onnx import TensorProto

    model = operator.raw_operator
    source = _scores(scope, operator, container)
    wide = "Double" in type(operator.inputs[0].type).__name__
    number, dtype = (TensorProto.DOUBLE, np.float64) if wide else (TensorProto.FLOAT, np.float32)
    classes = model.classes_

    def constant(values: Any, kind: int = number) -> str:
        name = scope.get_unique_variable_name("levelhead")
        values = np.asarray(values)
        container.add_initializer(name, kind, list(values.shape), values.ravel().tolist())
        return name

    def node(kind: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        name = out or scope.get_unique_variable_name(f"levelhead_{kind}")
        title = scope.get_unique_operator_name(f"levelhead_{kind}")
        container.add_node(kind, list(inputs), [name], name=title, **attributes)
        return name

    scores = source.full_name
    if model._kind != "logits":
        least = np.finfo(dtype).tiny
        scores = node("Log", node("Max", scores, constant([least])))
    elif len(classes) == 2:  # skl2onnx gives one decision value z or (-z, z); the last column is z
        ends = [constant([n], TensorProto.INT64) for n in (-1, np.iinfo(np.int64).max, 1)]
        scores = node("Mul", node("Slice", scores, *ends), constant([[-0.5, 0.5]]))
    adjustment = model.tuned_.adjustment
    adjusted = scores
    if adjustment.smoothing:
        votes = node("Add", node("Exp", adjusted), constant([adjustment.smoothing]))
        adjusted = node("Log", votes)
    if adjustment.multiplies:
        adjusted = node("Mul", adjusted, constant(adjustment.scale))
    if adjustment.adds:
        adjusted = node("Add", adjusted, constant(adjustment.offset))
    best = node("ArgMax", adjusted, axis=1, keepdims=0)
    if classes.dtype.kind in "UO":
        labels = constant([str(label).encode() for label in classes], TensorProto.STRING)
    else:
        labels = constant(classes.astype(np.int64), TensorProto.INT64)
    chosen = node("ArrayFeatureExtractor", labels, best, op_domain="ai.onnx.ml", op_version=1)
    node("Reshape", chosen, constant([-1], TensorProto.INT64), out=operator.outputs[0].full_name)
    if hasattr(model, "predict_proba"):
        cooled = node("Div", adjusted, constant([model.tuned_.temperature or 1.0]))
        node("Softmax", cooled, out=operator.outputs[1].full_name, axis=1)
    else:
        node("Identity", adjusted, out=operator.outputs[1].full_name)


def _thawed(estimator: Any) -> Any:
    if isinstance(estimator, FrozenEstimator):
        return _thawed(estimator.estimator)
    return estimator
