import timm
import torch
from long_tail_digits import counts, held_out, train
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3
from torch.utils.data import DataLoader

import levelhead as lh
from levelhead.hosts.torch import normalize_


def as_images(x):
    return torch.nn.functional.interpolate(x.view(-1, 1, 8, 8), scale_factor=4)


torch.manual_seed(0)
model = timm.create_model("test_resnet", num_classes=10, in_chans=1)
optimizer = create_optimizer_v2(model, opt="adamw", lr=3e-3)
lh.WVN(optimizer, model)  # in timm's train.py: after create_optimizer_v2
average = ModelEmaV3(model, decay=0.9)

for _epoch in range(4):
    for x, y in DataLoader(train, batch_size=32, shuffle=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(as_images(x)), y).backward()
        optimizer.step()
        average.update(model)

# Before validate(model_ema, ...): an average of unit vectors is shorter than one.
normalize_(average)

# After train.py: timm.create_model(..., checkpoint_path="model_best.pth.tar") and timm's own validation loader.
model = average.module
batches = ((as_images(x), y) for x, y in DataLoader(held_out, batch_size=100))
tuned = lh.tune(*lh.collect(model, batches), counts)
if tuned.worthwhile:  # the measured gain is above 0; tuned.verdict says how sure that is
    lh.adjust_(model, tuned)
print(tuned)
