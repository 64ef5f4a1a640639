import torch
from fastai.callback.core import Callback
from fastai.data.core import DataLoaders
from fastai.learner import Learner
from long_tail_digits import Net, counts, held_out, train

import levelhead as lh


class WVN(Callback):
    def before_fit(self):
        lh.normalize_(self.model.fc)

    def after_step(
        self,
    ):  # fastai's optimizers are not torch's, so it is a callback that follows the step
        lh.normalize_(self.model.fc)


data = DataLoaders.from_dsets(train, held_out, bs=32, device=torch.device("cpu"))
learn = Learner(data, Net(), loss_func=torch.nn.functional.cross_entropy, cbs=[WVN()])
with learn.no_logging():
    learn.fit(8, lr=3e-3)

tuned = lh.tune(*lh.scores(learn.model, data.valid), counts)
if tuned.worthwhile:  # the expected gain is above 0; tuned.verdict says it in words
    lh.adjust_(learn.model, tuned)
print(tuned)
model = learn.model
