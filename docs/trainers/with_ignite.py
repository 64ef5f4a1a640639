import torch
from ignite.engine import Events, create_supervised_trainer
from long_tail_digits import Net, counts, held_out, train
from torch.utils.data import DataLoader

import levelhead as lh

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
trainer = create_supervised_trainer(model, optimizer, torch.nn.functional.cross_entropy)

hook = lh.WVN(optimizer, model.fc)  # WVN: one line next to the optimizer


@trainer.on(Events.COMPLETED)
def adjust(engine):
    hook.remove()
    engine.state.tuned = tuned = lh.tune(
        *lh.collect(model, DataLoader(held_out, batch_size=256)), counts
    )
    engine.state.metrics["gain"] = tuned.gain
    if tuned.worthwhile:  # the measured gain is above 0; tuned.verdict says how sure that is
        lh.adjust_(model, tuned)


trainer.run(DataLoader(train, batch_size=32, shuffle=True), max_epochs=8)
tuned = trainer.state.tuned
print(tuned)
