"""levelhead inside other people's trainers, estimators and engines.

- torch: `WVN`, a hook on any torch optimizer
- lightning, transformers, keras: `WVNCallback`, and `AdjustCallback`, which adjusts the head when training ends
- sklearn, skl2onnx: classifiers with adjusted scores, by a fixed rule or tuned out of fold; written as ONNX
- predictor: any function that gives scores, with them adjusted
- logprobs: the label scores of a language model, from the answers of its server
- ray, dask, spark: tuned on tables that lie on many machines, each a map and a sum over `core.chunks`
- _wvn_callback, _adjust_callback: what the callbacks of all trainers share
- _given_choice: a choice made before a training, checked before the first step
- _training_labels, _trackers: counts from a trainer's data; what its trackers are told
- _base_classifier, _folds, _loss_counts: what classifiers share; scored folds; counts as a loss saw them
- _labels, _columns: labels that are names; tables as chunks
"""
