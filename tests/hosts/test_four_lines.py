"""The lines that docs/places.md shows for a torch model serve models of five libraries, and change what was tuned."""

import numpy as np
import pytest
import torch

import levelhead as lh

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
SMALL = {
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "num_labels": 3,
}
COUNTS = [300, 60, 15]


def draw(counts):
    """Return token ids, pictures and labels; the second token and the brightness tell the class."""
    rng, labels = np.random.default_rng(sum(counts)), torch.tensor(np.repeat(np.arange(3), counts))
    ids = torch.tensor(rng.integers(4, 20, size=(len(labels), 6)))
    ids[:, 1] = torch.where(torch.tensor(rng.random(len(labels)) < 0.8), labels + 1, ids[:, 1])
    return {
        "input_ids": ids,
        "pixel_values": torch.randn(len(labels), 3, 16, 16) + labels[:, None, None, None] / 4,
    }, labels


def bert():
    transformers = pytest.importorskip("transformers")
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(vocab_size=20, pad_token_id=0, **SMALL)
    )


def adapter():
    peft = pytest.importorskip("peft")
    return peft.get_peft_model(
        bert(), peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"])
    )


def vit():
    transformers = pytest.importorskip("transformers")
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(image_size=16, patch_size=8, **SMALL)
    )


def timm_model():
    return pytest.importorskip("timm").create_model("test_resnet", num_classes=3)


def lightning_module():
    class Module(pytest.importorskip("lightning.pytorch").LightningModule):
        def __init__(self):
            super().__init__()
            self.model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 3))

        def forward(self, x):
            return self.model(x)

    return Module()


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (bert, "input_ids"),
        (adapter, "input_ids"),
        (vit, "pixel_values"),
        (timm_model, None),
        (lightning_module, None),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_the_lines_adjust_a_model_of_each_library(build, name):
    torch.manual_seed(0)
    model, (inputs, labels), (held_out, truth) = build(), draw(COUNTS), draw([60, 60, 60])
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
    for _ in range(10):
        optimizer.zero_grad()
        logits = model(**{name: inputs[name]}).logits if name else model(inputs["pixel_values"])
        torch.nn.functional.cross_entropy(logits, labels).backward()
        optimizer.step()
    x = held_out[name or "pixel_values"]
    loader = [
        ({name: x[i::3], "labels": truth[i::3]} if name else (x[i::3], truth[i::3]))
        for i in range(3)
    ]

    before, seen = lh.collect(model, loader)
    tuned = lh.tune(before, seen, COUNTS)
    expected = lh.adjust(lh.Head(np.eye(3)), tuned).logits(np.asarray(before, float))
    lh.adjust_(model, tuned)
    assert tuned.adjustment.changes
    np.testing.assert_allclose(lh.collect(model, loader)[0], expected, atol=1e-3)
