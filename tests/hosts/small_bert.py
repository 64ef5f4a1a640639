"""A text classifier of three classes that is built in no time. No test by itself."""

import torch
from transformers import BertConfig, BertForSequenceClassification


def small_bert(seed=0, **settings):
    """Return a network with random weights; settings are those of its config, beside its small sizes."""
    config = BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=8,
        num_labels=3,
        **settings,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return BertForSequenceClassification(config)
