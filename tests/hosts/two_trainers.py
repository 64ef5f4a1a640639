"""One of two processes that train and evaluate together; run by the tests as `two_trainers.py RANK FILE`.

An evaluation of 249 samples in batches of 20 ends unevenly: samples that one process repeats must not count.
"""

import os
import sys
from pathlib import Path
from tempfile import mkdtemp

import torch
import torch.distributed as dist

HERE = Path(__file__).parent


def check(model) -> None:
    import imbalanced_texts as texts
    from transformers import Trainer, TrainingArguments

    import levelhead as lh
    from levelhead.hosts.transformers import AdjustCallback

    callback = AdjustCallback(anyway=True)
    args = TrainingArguments(
        mkdtemp(),
        use_cpu=True,
        ddp_backend="gloo",
        report_to="none",
        disable_tqdm=True,
        num_train_epochs=2,
        learning_rate=0.01,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=20,
        eval_strategy="epoch",
        save_strategy="no",
        logging_strategy="no",
    )
    run = Trainer(model, args, None, texts.TRAIN, texts.EVAL, callbacks=[callback])
    assert run.accelerator.num_processes == 2
    run.train()
    features = None
    head = getattr(model, "classifier", None)
    if head is None:  # a Llama's, which has no bias
        head = model.score
    weights = torch.cat([p.detach().flatten() for p in head.parameters()])
    others = [torch.empty_like(weights) for _ in range(2)]
    dist.all_gather(others, weights)
    assert torch.equal(others[0], others[1]), "both processes have the same leveled head"
    callback.adjusted.restore()
    logits, labels = texts.logits_of(model)
    if head.bias is None:
        features = texts.features_of(model)
        assert callback.adjusted.along.samples == 249
    truth = lh.tune(logits, labels, texts.COUNTS, names=texts.NAMES, features=features)
    tuned = callback.tuned
    assert (tuned.n, tuned.rule) == (249, truth.rule), tuned
    assert abs(tuned.adjustment.offset - truth.adjustment.offset).max() < 1e-3
    assert abs(tuned.gain - truth.gain) < 0.01
    if truth.reach is not None:
        assert abs(tuned.reach[0] - truth.reach[0]) < 1e-3


if __name__ == "__main__":
    rank = sys.argv[1]
    meeting = {
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "0",
    }  # not used: the processes meet in a file
    os.environ |= {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": "2",
        "HF_HUB_OFFLINE": "1",
        **meeting,
    }
    sys.path.insert(0, str(HERE))
    dist.init_process_group(
        "gloo", init_method=f"file://{sys.argv[2]}", rank=int(rank), world_size=2
    )
    import imbalanced_texts

    check(imbalanced_texts.network())
    check(imbalanced_texts.llama())
    dist.barrier()
    dist.destroy_process_group()
