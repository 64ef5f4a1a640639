"""One of two processes that fit and validate together; run by the tests as `two_lightnings.py RANK FILE`.

The 249 validation samples are dealt out to two processes, so that one is dealt twice: it must not count twice.
"""

import os
import sys
from pathlib import Path
from tempfile import mkdtemp

HERE = Path(__file__).parent


def check() -> None:
    import lightning.pytorch as pl
    import torch
    import torch.distributed as dist
    from test_lightning_tune import COUNTS, EVAL, TRAIN, Net, chosen_by_hand, logits_of, same
    from torch.utils.data import DataLoader

    import levelhead as lh
    from levelhead.hosts.lightning import AdjustCallback

    dist.init_process_group(
        "gloo", init_method=f"file://{sys.argv[2]}", rank=int(sys.argv[1]), world_size=2
    )
    for bias in (True, False):
        module, callback = Net(bias), AdjustCallback(anyway=True, counts=COUNTS)
        trainer = pl.Trainer(
            accelerator="cpu",
            strategy="ddp",
            devices=2,
            max_epochs=2,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=mkdtemp(),
            callbacks=[callback],
        )
        trainer.fit(
            module, DataLoader(TRAIN, batch_size=25, shuffle=True), DataLoader(EVAL, batch_size=20)
        )
        assert trainer.world_size == 2
        weights = torch.cat([p.detach().flatten() for p in module.fc.parameters()])
        everyones = trainer.strategy.all_gather(weights)
        assert torch.equal(everyones[0], everyones[1]), "both processes have the same leveled head"
        assert same(callback.tuned, chosen_by_hand(callback, module)), callback.tuned
        if not bias:
            features = module.body(EVAL.tensors[0]).detach()
            truth = lh.tune(logits_of(module), EVAL.tensors[1], COUNTS, features=features)
            assert abs(callback.tuned.gain - truth.gain) < 1e-6
            assert abs(callback.tuned.reach[0] - truth.reach[0]) < 1e-4


if __name__ == "__main__":
    os.environ |= {"LOCAL_RANK": sys.argv[1], "NODE_RANK": "0", "WORLD_SIZE": "2"}
    os.environ |= {
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "0",
    }  # not used: the processes meet in a file
    sys.path.insert(0, str(HERE))
    check()
