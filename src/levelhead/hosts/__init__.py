"""levelhead inside other people's trainers and estimators.

- torch: `WVN`, a hook on any torch optimizer
- lightning, transformers: callbacks for WVN and RS; losses for the Hugging Face Trainer
- sklearn: classifiers with adjusted scores, at a fixed or a tuned gamma
- _callback: what the callbacks share
- _base_classifier, _folds: what the classifiers share, with the scores of any classifier; one fold of a tuning
"""
