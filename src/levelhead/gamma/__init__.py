"""Which gamma to use: the exact path over gamma, and the choice on it.

- path: `gamma_path` and `GammaPath`, the exact path over gamma
- path_curves, path_predictions: its errors and accuracies; what is predicted along it
- tune: `tune` and `cross_fit`, which choose a rule and its gamma
- match_prior: `match_prior`, which does so without labels
- options: `TuneOptions`, the options of a tuning, checked
- auto: the choice of the rule
- fitters, cross_fitted: each rule fitted on some samples, and judged on the others
- choose: the choice on one rule's path
- held_out, folds: the samples that a choice needs, and parts of them
- temperature: the scale of scores
- tuned: `Tuned`, a chosen gamma with what is needed to judge it
- multilabel, tuned_labels: several labels per sample, each with its own shift; what was chosen for them
- label_inputs, label_cuts, label_objective: their inputs, every threshold of a label, what is minimized
- compare: `compare` and `Comparison`, the rules side by side
- vector: `fit_vector`, a scale and an offset per class, fitted by log loss
- priors: `estimate_prior`, the shares of the classes in deployment, by EM or BBSE
- metrics: F1, MCC, kappa and others, costs and floors over gamma
- class_changes: what these are computed from, class by class
- criterion: the objective that the choice minimizes, and its bootstrap replicates
- grid, resampled: intervals of gamma, and the choice on them of many resamples at once
- diagnostics, count_doubts: warnings about data, heads and counts, before gamma is chosen
- rule: the rules, and checks of their parameters
- envelope, envelope_walk: every change of every prediction over gamma, and how they are found
- engines, intervals: the interval of gammas on which each sample is right; intervals_numba, intervals_torch,
  intervals_triton: the same, faster or on a GPU
- top_k: several such intervals, for top-k and for a kept bias
- bootstrap, merge: weights of samples, resamples and their curves; paths joined
- partial, frame, partial_bytes: `Partial`, a summary of a shard that adds up; its grid; as bytes
- second_pass, events: the changes in the cells where the choice can lie
- tune_partial, tune_chunks: the choice from a `Partial`, and from chunks of samples
- chunks: logits read chunk by chunk
- collect: the logits and labels of a torch model over a loader
"""
