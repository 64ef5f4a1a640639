"""Which rule and which strength: the choice on held-out samples.

- tune: `tune`, `cross_fit` and `match_prior`, which choose a rule and its gamma, the last without labels
- goal: `Goal`, what a choice is to be good at, and the options of a tuning, checked
- samples, paths: the samples that a choice needs, checked; the path of each rule on them
- auto: the choice of the rule, and of a strength on one rule's path
- fitters, cross_fit: each rule fitted on some samples, and judged on the others
- objective: what the choice minimizes
- replicates, replicate_groups: the choice of many resamples at once
- tuned, tuned_json: `Tuned`, a chosen gamma with what is needed to judge it; as a file
- verdict: the gain to expect on new samples, and how likely it is above 0
- compare: `compare` and `Comparison`, the rules side by side
- vector: `fit_vector`, a scale and an offset per class, fitted by log loss
- offsets, floors, offset_fitter: an offset per class by exact line searches, floors of recall, and the rule of these
- priors: `estimate_prior`, the shares of the classes in deployment, by EM or BBSE
- diagnostics: warnings about data, heads and counts, before gamma is chosen
- snapshot: `Snapshot`, what is left of a training
- chunked: the choice on samples that are read in chunks, here or on other machines
"""
