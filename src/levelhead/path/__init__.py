"""The exact path over a strength: where samples are right, every change of a prediction, and metrics along it.

path: `gamma_path` and `GammaPath`
engines, crossing, intervals, intervals_torch, intervals_triton, top_k, chunks: where samples are right
envelope, envelope_walk: every change of every prediction
metrics, grid, resample: metrics over gamma, choices among intervals of gamma, resamples and folds
"""
