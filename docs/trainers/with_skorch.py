import torch
from long_tail_digits import Net, counts, held_out, train
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback

import levelhead as lh


class WVN(Callback):
    def on_train_begin(self, net, X=None, y=None, **kwargs):
        self.hook = lh.WVN(net.optimizer_, net.module_.fc)

    def on_train_end(self, net, X=None, y=None, **kwargs):
        self.hook.remove()


net = NeuralNetClassifier(
    Net,
    criterion=torch.nn.CrossEntropyLoss,
    optimizer=torch.optim.SGD,
    optimizer__momentum=0.9,
    lr=0.1,
    batch_size=32,
    max_epochs=8,
    iterator_train__shuffle=True,
    train_split=None,
    callbacks=[WVN()],
    verbose=0,
)
net.fit(train, y=None)

tuned = lh.tune(*lh.collect(net.module_, net.get_iterator(held_out, training=False)), counts)
if tuned.worthwhile:  # the measured gain is above 0; tuned.verdict says how sure that is
    lh.adjust_(net.module_, tuned)
print(tuned)
model = net.module_
