import torch
from fastai.callback.core import Callback
from fastai.data.core import DataLoaders
from fastai.learner import Learner
from long_tail_digits import Net, counts, held_out, train

import levelhead as lh
from levelhead.hosts.torch import normalize_


class WVN(Callback):
    def before_fit(self):
        normalize_(self.model.fc)

    def after_step(self):  # fastai's optimizers are not torch's, so a callback follows the step
        normalize_(self.model.fc)


data = DataLoaders.from_dsets(train, held_out, bs=32, device=torch.device("cpu"))
learn = Learner(data, Net(), loss_func=torch.nn.functional.cross_entropy, cbs=[WVN()])
with learn.no_logging():
    learn.fit(8, lr=3e-3)

tuned = lh.tune(*lh.collect(learn.model, data.valid), counts)
if tuned.worthwhile:  # the measured gain is above 0; tuned.verdict says how sure that is
    lh.adjust_(learn.model, tuned)
print(tuned)
model = learn.model
