"""levelhead inside other people's trainers and estimators.

- torch: `WVN`, a hook on any torch optimizer
- lightning, transformers: callbacks for WVN and adjusting the head; losses for the Hugging Face Trainer
- keras: the same callbacks for Keras 3
- sklearn: classifiers with adjusted scores, at a fixed or a tuned gamma
- ray: gamma chosen on a Ray data set
- skl2onnx: a converter that writes those classifiers as ONNX
- predictor: any function that gives scores, such as a native booster, with them adjusted
- _callback: what the callbacks share: counts from a trainer's data, a choice on its evaluation, its trackers
- _base_classifier: what the classifiers share, with the scores of any classifier
- _out_of_fold: the folds of a tuning, which scorers are exact, the choice, and `summary_`, what is known after it
- summary: the old name of that
"""
