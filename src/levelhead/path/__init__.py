"""The exact path over a strength: where samples are right, every change of a prediction, and metrics along it.

- path: `gamma_path` and `GammaPath`
- metrics: F1, MCC, kappa and others, costs and floors over gamma
- grid: intervals of gamma
- envelope, envelope_walk: every change of every prediction over gamma, and how they are found
- engines, intervals, crossing: the interval of gammas on which each sample is right, and where two scores are equal
- intervals_torch, intervals_triton: the same on a GPU
- top_k: several such intervals, for top-k and for a kept bias
- resample: weights of samples, resamples and folds
- chunks: logits read chunk by chunk
"""
