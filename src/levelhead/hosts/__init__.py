"""levelhead inside other people's trainers and estimators.

- torch: `WVN`, a hook on any torch optimizer
- lightning, transformers, keras: callbacks for WVN and adjusting the head; losses for the Hugging Face Trainer
- sklearn, skl2onnx: classifiers with adjusted scores, at a fixed or a tuned gamma; written as ONNX
- ray, predictor: gamma chosen on a Ray data set; any function that gives scores, with them adjusted
- _callback: what the callbacks share: counts from a trainer's data, a choice on its evaluation, its trackers
- _base_classifier, _out_of_fold: what the classifiers share; the folds of a tuning, the choice, and `summary_`
- summary: the old name of that
"""
