import torch
from accelerate import Accelerator
from long_tail_digits import Net, counts, held_out, train
from torch.utils.data import DataLoader

import levelhead as lh

accelerator = Accelerator(cpu=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(train, batch_size=32, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

hook = lh.WVN(optimizer, accelerator.unwrap_model(model).fc)  # WVN: one line after prepare

for _epoch in range(8):
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.cross_entropy(model(x), y))
        optimizer.step()
hook.remove()

# Every process runs the held-out samples by itself (the loader is not prepared), so all choose the same.
tuned = lh.tune(*lh.collect(model, DataLoader(held_out, batch_size=256)), counts)
if tuned.worthwhile:  # the measured gain is above 0; tuned.verdict says how sure that is
    lh.adjust_(model, tuned)
print(tuned)
