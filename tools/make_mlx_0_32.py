"""Write the weights of tests/files/mlx_0_32: pip install 'mlx[cpu]==0.32.4'.

MLX is for Apple's machines first, so what it wrote is kept in the repository.
"""

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "tests" / "files" / "mlx_0_32"


def main() -> None:
    """Write a network of two layers in three precisions, compressed, and with its head quantized."""
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
        network.save_weights(str(FOLDER / f"{name}.npz"))
        if name == "float32":
            weights = dict(mx.load(str(FOLDER / "float32.npz")))
            mx.savez_compressed(str(FOLDER / "compressed.npz"), **weights)
            nn.quantize(network, group_size=64, class_predicate=lambda path, _: path == "head")
            network.save_weights(str(FOLDER / "quantized.npz"))


if __name__ == "__main__":
    main()
