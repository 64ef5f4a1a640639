"""The exact path over a strength: where samples are right, every change of a prediction, and metrics along it.

path: `gamma_path` and `GammaPath`
engines, intervals_torch, intervals_triton: where samples are right
envelope: logits read in chunks, and every change of every prediction
metrics, resample: metrics over gamma, choices among intervals of gamma, resamples and folds
"""
