"""The exact path over a strength: where samples are right, every change of a prediction, and metrics along it.

`path` has `GammaPath`; `engines`, `crossing`, `intervals*` and `top_k` find where samples are right; `envelope*` finds
every change of a prediction; `metrics`, `grid` and `resample` make curves, choices and resamples of them.
"""
