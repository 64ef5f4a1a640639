"""A small text classifier and imbalanced data that it can learn, for the tests of trainers. No test by itself."""

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
)

NAMES = ["often", "seldom", "rare"]
COUNTS = [160, 40, 16]


def samples(counts, seed):
    """Return items whose tokens say the class, with noise: tokens 4 k .. 4 k + 3 are those of class k."""
    draw = torch.Generator().manual_seed(seed)
    items = []
    for label, n in enumerate(counts):
        of_class = torch.randint(4 * label, 4 * label + 4, (n, 6), generator=draw)
        any_class = torch.randint(0, 12, (n, 6), generator=draw)
        ids = torch.where(torch.rand(n, 6, generator=draw) < 0.45, of_class, any_class)
        items += [{"input_ids": row, "labels": label} for row in ids]
    return [items[i] for i in torch.randperm(len(items), generator=draw)]


TRAIN, EVAL = samples(COUNTS, seed=0), samples([83, 83, 83], seed=1)


def network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return BertForSequenceClassification(
            BertConfig(
                vocab_size=12,
                hidden_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=16,
                max_position_embeddings=8,
                num_labels=3,
                id2label=dict(enumerate(NAMES)),
                pad_token_id=None,
                hidden_dropout_prob=0.1,
                attention_probs_dropout_prob=0.0,
                initializer_range=0.2,
            )
        )


def llama(seed=0):
    """A language model whose head, `score`, has no bias."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForSequenceClassification(
            LlamaConfig(
                vocab_size=13,
                hidden_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=16,
                num_labels=3,
                id2label=dict(enumerate(NAMES)),
                pad_token_id=12,
                initializer_range=0.2,
            )
        )


@torch.no_grad()
def features_of(model, items=EVAL):
    """Return what the `score` of a Llama takes of each item: its last token."""
    ids = torch.stack([item["input_ids"] for item in items])
    return model.eval().model(input_ids=ids).last_hidden_state[:, -1]


@torch.no_grad()
def logits_of(model, items=EVAL):
    """Return the logits of all items at once, and their labels."""
    model.eval()
    output = model(input_ids=torch.stack([item["input_ids"] for item in items]))
    return output.logits, torch.tensor([item["labels"] for item in items])
