"""Which rule and which strength: the choice on held-out samples.

- tune: `tune`, `cross_fit` and `match_prior`, which choose a rule and its gamma, the last without labels
- samples, paths: `Samples`, `Goal` and the options of a tuning, checked; the path of each rule on the samples
- auto: the choice of the rule, and of a strength on one rule's path
- fitters, cross_fit: each rule fitted on some samples, and judged on the others; the choice on many resamples
- objective, replicate_groups: what the choice minimizes; samples that are alike in all resamples
- tuned, tuned_json: `Tuned`, a chosen gamma with what is needed to judge it; as a file
- diagnostics: warnings about data, heads and counts; `Verdict`, the gain to expect on new samples
- compare: `compare` and `Comparison`, the rules side by side
- vector: `fit_vector`, a scale and an offset per class, fitted by log loss
- offsets, floors: an offset per class by exact line searches, and floors of recall
- priors: `estimate_prior`, the shares of the classes in deployment, by EM or BBSE
- snapshot: `Snapshot`, what is left of a training
- chunked: the choice on samples that are read in chunks, here or on other machines
"""
