"""Which rule and which strength: the choice on held-out samples.

- tune, chunked, compare: `tune`, `cross_fit` and `match_prior`; the same on chunks of samples; the rules side by side
- samples, paths, snapshot: the samples, the `Goal` and the options, checked; each rule's path; what a training leaves
- auto, fitters, cross_fit: the choice of the rule; each rule fitted on some samples, and judged on the others
- objective, replicate_groups: what the choice minimizes; samples that are alike in all resamples
- tuned, tuned_json, diagnostics: `Tuned` and its file; warnings, and `Verdict`, the gain to expect on new samples
- vector, offsets, floors: a scale and an offset per class, by log loss; offsets by line searches; floors of recall
- gamma_path, path_metrics, resample: the path of labelled samples, metrics along it, folds
- priors: `estimate_prior`, the shares of the classes in deployment, by EM or BBSE
"""
