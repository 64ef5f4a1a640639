"""The exact path over a strength: where samples are right, every change of a prediction, and metrics along it.

- path: `gamma_path` and `GammaPath`
- path_curves, path_predictions: its errors and accuracies; what is predicted along it
- metrics, class_changes: F1, MCC, kappa and others, costs and floors over gamma; what they are computed from
- grid: intervals of gamma
- envelope, envelope_walk: every change of every prediction over gamma, and how they are found
- engines, intervals: the interval of gammas on which each sample is right
- intervals_torch, intervals_triton: the same on a GPU
- top_k: several such intervals, for top-k and for a kept bias
- bootstrap, folds, merge: weights of samples, resamples and parts of them; paths joined
- chunks: logits read chunk by chunk
"""
