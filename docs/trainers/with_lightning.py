import lightning.pytorch as pl
import torch
from long_tail_digits import Net, held_out, train
from torch.utils.data import DataLoader

from levelhead.hosts.lightning import AdjustCallback, WVNCallback


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Net()

    def forward(self, x):
        return self.model(x)

    def training_step(self, batch, _):
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("val_loss", torch.nn.functional.cross_entropy(self(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


adjusting = AdjustCallback(page="page.html")  # counts come from the labels of the training data
trainer = pl.Trainer(
    callbacks=[WVNCallback("model.fc"), adjusting],
    max_epochs=8,
    accelerator="cpu",
    log_every_n_steps=5,
    enable_progress_bar=False,
    enable_model_summary=False,
    enable_checkpointing=False,
    logger=False,
)
model = Classifier()
trainer.fit(
    model, DataLoader(train, batch_size=32, shuffle=True), DataLoader(held_out, batch_size=256)
)
tuned = adjusting.tuned
