"""What each extra of the package adds, as a program that runs next to the files of `make_files`.

`ADDS` has for each extra the other extras that its program needs, and the program. Without the extra, every program
ends with the command that installs what is missing. test_package_alone.py runs all but the `HEAVY` ones with the wheel
and links to what is installed here; try_extras.py installs each extra into an environment of its own.
"""

import subprocess
import sys
from pathlib import Path

from . import release

# The beginning of every program: `levelhead(LINE)` runs a command in its process.
COMMAND = """
import sys
from levelhead import cli

def levelhead(line):
    sys.argv = ["levelhead", *line.split()]
    try:
        assert not cli.main()
    except SystemExit as end:
        assert not end.code, line
"""
SMALL = "--data digits --ratio 10 --epochs 1 --hold-out 0.1"
# {extra: (other extras that its program needs, the program)}.
ADDS: dict[str, tuple[tuple[str, ...], str]] = {
    "torch": (
        (),
        """
import levelhead as lh
lh.WVN
import torch
layer = torch.nn.Linear(16, 4)
before = layer.weight.detach().clone()
with lh.rescale_(torch.nn.Sequential(layer), [1000, 300, 90, 30], gamma=0.5):
    assert not torch.equal(layer.weight, before)
assert torch.equal(layer.weight, before)
torch.save(torch.nn.Sequential(layer).state_dict(), "model.pt")
levelhead("tune --logits logits.npy --labels labels.npy --counts counts.json -o for-torch.json")
levelhead("adjust model.pt --tuned for-torch.json -o adjusted.pt")
levelhead("undo adjusted.pt -o back.pt")
assert open("back.pt", "rb").read() == open("model.pt", "rb").read()
""",
    ),
    "sklearn": (
        (),
        """
import numpy as np
from levelhead.hosts.sklearn import AdjustedClassifierCV
from sklearn.linear_model import LogisticRegression
X, y = np.load("logits.npy"), np.load("labels.npy")
assert AdjustedClassifierCV(LogisticRegression()).fit(X, y).predict(X).shape == y.shape
""",
    ),
    "onnx": (
        (),
        """
levelhead("inspect model.onnx")
levelhead("adjust model.onnx --rule rescale --strength 0.5 --counts counts.json -o rescaled.onnx")
import numpy as np, onnxruntime
x = np.ones((1, 16), np.float32)
names = "model.onnx", "rescaled.onnx"
before, after = (onnxruntime.InferenceSession(name).run(None, {"x": x})[0][0] for name in names)
assert np.allclose(after / before, (1000 / np.array([1000, 300, 90, 30])) ** 0.5, rtol=1e-5)
""",
    ),
    "plot": (
        (),
        """
levelhead("tune --logits logits.npy --labels labels.npy --counts counts.json -o plotted.json --plot curve.png")
assert open("curve.png", "rb").read(4) == b"\\x89PNG"
""",
    ),
    "parquet": (
        (),
        """
levelhead("tune --logits scores.parquet --labels labels.npy --counts counts.json -o from-parquet.json")
""",
    ),
    "images": (
        ("torch", "sklearn"),
        """
levelhead("train --data pictures --epochs 1 --hold-out 0.2 --runs of-images")
""",
    ),
    "lightning": (
        ("torch",),
        """
from levelhead.hosts.lightning import WVNCallback
import torch
from lightning.pytorch import LightningModule, Trainer
class Small(LightningModule):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)
    def training_step(self, batch, _):
        return torch.nn.functional.cross_entropy(self.fc(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(6, 4), torch.arange(6) % 3), batch_size=3)
model = Small()
Trainer(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        accelerator="cpu", callbacks=[WVNCallback("fc")]).fit(model, data)
assert torch.allclose(model.fc.weight.norm(dim=1), torch.ones(3))
""",
    ),
    "transformers": (
        ("torch",),
        """
from levelhead.hosts.transformers import WVNCallback
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
config = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, num_labels=3)
model = BertForSequenceClassification(config)
data = [{"input_ids": [1, 2, k], "labels": k} for k in range(3)]
arguments = TrainingArguments("hf", max_steps=1, report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no")
Trainer(model, arguments, train_dataset=data, callbacks=[WVNCallback()]).train()
assert torch.allclose(model.classifier.weight.norm(dim=1), torch.ones(3))
""",
    ),
    "keras": (
        ("torch",),  # as the backend
        """
import os
os.environ["KERAS_BACKEND"] = "torch"
from levelhead.hosts.keras import WVNCallback
import keras, numpy as np, levelhead as lh
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(4)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x, y = np.random.default_rng(0).normal(size=(12, 16)).astype("float32"), np.arange(12) % 4
model.fit(x, y, verbose=0, callbacks=[WVNCallback()])
lengths = np.linalg.norm(model.layers[-1].get_weights()[0], axis=0)
assert np.allclose(lengths, 1, atol=1e-5), lengths
with lh.rescale_(model, [1000, 300, 90, 30], gamma=0.5):
    scaled = np.linalg.norm(model.layers[-1].get_weights()[0], axis=0)
assert np.allclose(scaled, (1000 / np.array([1000, 300, 90, 30])) ** 0.5, rtol=1e-4)
""",
    ),
    "tensorboard": (
        ("torch", "sklearn"),
        f"""
levelhead("train {SMALL} --track tensorboard --runs tracked")
import pathlib
assert list(pathlib.Path("tracked").rglob("*tfevents*"))
""",
    ),
    "ray": (
        ("torch", "sklearn"),
        f"""
if __name__ == "__main__":
    levelhead("train {SMALL} --method baseline --threads 1 --runs here")  # as a worker with one core does
    open("grid.toml", "w").write('data = "digits"\\nratio = 10\\nepochs = 1\\nhold_out = 0.1\\n')
    levelhead("sweep grid.toml --executor ray --workers 1 --runs there")
    import pathlib, ray
    from safetensors.numpy import load_file
    [here, there] = (load_file(next(pathlib.Path(name).glob("*/snapshot.safetensors"))) for name in ("here", "there"))
    assert all((here[name] == there[name]).all() for name in here)
    import numpy as np, levelhead as lh
    from levelhead.hosts.ray import tune_dataset
    logits, labels, counts = np.load("logits.npy"), np.load("labels.npy"), [1000, 300, 90, 30]
    rows = ray.data.from_items([{{"logits": row, "labels": label}} for row, label in zip(logits, labels)])
    chosen = tune_dataset(rows, counts, rule="rescale")
    assert chosen.strength == lh.tune(logits, labels, counts, rule="rescale").strength
""",
    ),
    "dask": (
        (),
        """
from levelhead.hosts.dask import tune_dataframe
import dask, dask.bag, numpy as np, levelhead as lh
logits, labels, counts = np.load("logits.npy"), np.load("labels.npy"), [1000, 300, 90, 30]
items = [{"logits": row, "labels": label} for row, label in zip(logits, labels.tolist())]
with dask.config.set(scheduler="sync"):
    chosen = tune_dataframe(dask.bag.from_sequence(items, npartitions=1), counts)
assert chosen.gain == lh.tune_chunks([(logits, labels)], counts).gain
""",
    ),
    "spark": (
        (),
        """
import os
os.environ["PYSPARK_PYTHON"] = sys.executable  # of its workers, else the python3 of the system
from levelhead.hosts.spark import tune_dataframe
import numpy as np
from pyspark.sql import SparkSession
logits, labels, counts = np.load("logits.npy"), np.load("labels.npy"), [1000, 300, 90, 30]
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = [(row, label) for row, label in zip(logits.tolist(), labels.tolist())]
table = session.createDataFrame(rows, "logits array<double>, labels int").coalesce(1)
chosen = tune_dataframe(table, counts)
session.stop()
assert chosen.n == len(labels), chosen
""",
    ),
    "mlflow": (
        ("torch", "sklearn"),
        f"""
import os
os.environ["MLFLOW_TRACKING_URI"] = "sqlite:///mlflow.db"
levelhead("train {SMALL} --track mlflow --runs tracked")
import mlflow
[run] = mlflow.search_runs(output_format="list")
assert run.info.status == "FINISHED" and run.data.metrics["loss"] > 0, run
""",
    ),
    "wandb": (
        ("torch", "sklearn"),
        f"""
import os
os.environ |= {{"WANDB_MODE": "offline", "WANDB_SILENT": "true"}}
levelhead("train {SMALL} --track wandb --runs tracked")
import pathlib
[kept] = pathlib.Path("tracked").glob("*/wandb/offline-run-*/*.wandb")
assert b"loss" in kept.read_bytes()
""",
    ),
}
# What takes long to import, a cluster and two servers: `make test-extras` runs them, `make test` does not.
HEAVY = {"images", "keras", "lightning", "mlflow", "ray", "spark", "tensorboard", "transformers"}
HEAVY |= {"wandb"}


def make_files(folder: Path) -> None:
    """Write what the programs read into a folder."""
    import numpy as np
    import onnx
    import pyarrow
    from PIL import Image
    from pyarrow import parquet

    subprocess.run([sys.executable, "-c", release.MAKE_FILES], cwd=folder, check=True)
    logits = np.load(folder / "logits.npy")
    rng = np.random.default_rng(0)
    parquet.write_table(
        pyarrow.table({f"class {k}": logits[:, k] for k in range(4)}), folder / "scores.parquet"
    )
    for k, name in enumerate(("cat", "dog")):
        (folder / "pictures" / name).mkdir(parents=True)
        for i in range(12):
            pixels = rng.integers(0, 128, (8, 8, 3), dtype=np.uint8) + np.uint8(100 * k)
            Image.fromarray(pixels).save(folder / "pictures" / name / f"{i}.png")
    helper = onnx.helper
    weight = rng.random((4, 16), dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "fc.weight"], ["logits"], transB=1)],
        "model",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 16])],
        [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [1, 4])],
        [onnx.numpy_helper.from_array(weight, "fc.weight")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
