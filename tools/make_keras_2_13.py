"""Write the models of tests/files/keras_2_13: pip install tensorflow-cpu==2.13.1, on Python 3.11 or
before.

Keras 2.13 wrote .keras archives in another way than Keras 3, and people have them. It does not
install beside what the tests need, so what it wrote is kept in the repository.
"""

from pathlib import Path
from typing import Any, TypeAlias

TensorFlow: TypeAlias = Any  # the module, which is not installed here
KerasModel: TypeAlias = Any
FOLDER = Path(__file__).parents[1] / "tests" / "files" / "keras_2_13"


def functional(tf: TensorFlow) -> KerasModel:
    """Return a model of layers of one class and size, dropout between them, a model inside, a softmax of its own."""
    layers = tf.keras.layers
    inside = tf.keras.Input((8,))
    hidden = layers.Dropout(0.1)(layers.Dense(3)(inside))
    body = tf.keras.Model(inside, layers.Dense(3)(hidden), name="inner")
    given = tf.keras.Input((8,))
    first = layers.Dense(3, name="first")(body(given))
    second = layers.Dropout(0.1)(layers.Dense(3, name="second")(first))
    top = layers.Dense(3, name="top")(second)
    return tf.keras.Model(given, layers.Activation("softmax")(top))


def sequential(tf: TensorFlow) -> KerasModel:
    """Return a Sequential model that was compiled, so that its optimizer is saved too."""
    layers = tf.keras.layers
    stack = [layers.Dense(3, activation="relu"), layers.Dropout(0.1), layers.Dense(3, name="top")]
    model = tf.keras.Sequential([tf.keras.Input((8,)), *stack])
    model.compile("adam", "mse")
    return model


def shared(tf: TensorFlow) -> KerasModel:
    """Return a model with a layer that is also in one inside it: its weights are saved once."""
    layers = tf.keras.layers
    given = tf.keras.Input((3,))
    top = layers.Dense(3, name="top")
    body = tf.keras.Model(given, layers.Dense(3)(top(given)), name="inner")
    x = tf.keras.Input((3,))
    return tf.keras.Model(x, layers.Dense(3, name="last")(top(body(x))))


def main() -> None:
    import tensorflow as tf

    for make in (functional, sequential, shared):
        tf.keras.utils.set_random_seed(0)
        make(tf).save(FOLDER / f"{make.__name__}.keras")


if __name__ == "__main__":
    main()
