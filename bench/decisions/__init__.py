"""What `tune` is worth on real data, next to what else people do about imbalance: docs/decisions.md."""
