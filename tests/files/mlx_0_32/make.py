"""Write the weights of this folder, with MLX: pip install 'mlx[cpu]==0.32.4'."""

import mlx.core as mx
import mlx.nn as nn


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 64)
        self.head = nn.Linear(64, 3)

    def __call__(self, x):
        return self.head(nn.relu(self.body(x)))


for name in ("float32", "float16", "bfloat16"):
    mx.random.seed(0)
    network = Network()
    network.set_dtype(getattr(mx, name))
    network.save_weights(f"{name}.npz")
    if name == "float32":
        mx.savez_compressed("compressed.npz", **dict(mx.load("float32.npz")))
        nn.quantize(network, group_size=64, class_predicate=lambda path, _: path == "head")
        network.save_weights("quantized.npz")
