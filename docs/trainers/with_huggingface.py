from long_tail_digits import held_out, train
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

from levelhead.hosts.transformers import AdjustCallback, WVNCallback

sizes = {
    "image_size": 8,
    "patch_size": 2,
    "num_channels": 1,
    "hidden_size": 32,
    "intermediate_size": 64,
}
model = ViTForImageClassification(
    ViTConfig(num_labels=10, num_hidden_layers=1, num_attention_heads=4, **sizes)
)

adjusting = AdjustCallback(page="page.html")  # counts come from the labels of the training data
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        "output",
        num_train_epochs=6,
        learning_rate=3e-3,
        per_device_train_batch_size=32,
        eval_strategy="epoch",
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    ),
    train_dataset=[{"pixel_values": x.view(1, 8, 8), "labels": int(y)} for x, y in train],
    eval_dataset=[{"pixel_values": x.view(1, 8, 8), "labels": int(y)} for x, y in held_out],
    callbacks=[WVNCallback(), adjusting],
)
trainer.train()
# from_pretrained("adjusted") loads the adjusted model; its config says what was done
trainer.save_model("adjusted")
tuned = adjusting.tuned
