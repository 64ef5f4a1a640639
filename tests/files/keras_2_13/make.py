"""Write the models of this folder, with Keras 2.13: pip install tensorflow-cpu==2.13.1, on Python 3.11 or before."""

import tensorflow as tf
from keras import layers as L


def functional():
    """Layers of one class and size, dropout between them, a model inside, and a softmax of its own."""
    inside = tf.keras.Input((8,))
    body = tf.keras.Model(inside, L.Dense(3)(L.Dropout(0.1)(L.Dense(3)(inside))), name="inner")
    given = tf.keras.Input((8,))
    x = L.Dropout(0.1)(L.Dense(3, name="second")(L.Dense(3, name="first")(body(given))))
    return tf.keras.Model(given, L.Activation("softmax")(L.Dense(3, name="top")(x)))


def sequential():
    layers = [L.Dense(3, activation="relu"), L.Dropout(0.1), L.Dense(3, name="top")]
    model = tf.keras.Sequential([tf.keras.Input((8,)), *layers])
    model.compile("adam", "mse")
    return model


def shared():
    """A layer that is in the model and in one inside it: its weights are saved once."""
    given, top = tf.keras.Input((3,)), L.Dense(3, name="top")
    body = tf.keras.Model(given, L.Dense(3)(top(given)), name="inner")
    x = tf.keras.Input((3,))
    return tf.keras.Model(x, L.Dense(3, name="last")(top(body(x))))


for make in (functional, sequential, shared):
    tf.keras.utils.set_random_seed(0)
    make().save(f"{make.__name__}.keras")
