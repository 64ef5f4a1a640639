"""What `tune` does, to be read in this order.

Scores [N, K] and labels [N] of held-out samples go in, a `Tuned` comes out: a number for each class (or two), and
what that is worth on samples that no fit has seen. numpy and scipy are all it needs; torch only where a user's
tensors bring it. Heads in models and files, hosts and the command line stand on this room, and it knows none of
them. Three nouns carry it: a `Rule` is fitted to `Samples` and gives `Fits`; a `Metric` is a loss of `Tables`, which
add up; `Evidence` is what a judge says of predictions before and after.

Checked input:
    counts, class_names, class_labels, arguments: training counts, names, labels, and numbers that users give
    head, head_checks, label_task: the last layer; what scaling and rounding can change; one class or several labels
    probabilities: probabilities as scores

A choice:
    adjustment, rules: what is done to each class, and the table of ways to find it
    metrics, goal, samples: losses of small tables; what to be good at, and on which held-out samples
    calibration, newton, per_class, metric_offsets, floors: the fit of a number for each class
    one_strength, gamma_path: rules of one strength, by tables along the exact path
    constant_direction: how a head without a bias takes offsets

What it is worth:
    predict, judge, evidence, evidence_words: on samples that it was not fitted on, in numbers and in words
    doubts: what speaks against it

From end to end:
    tune, tuned, tuned_json: from scores to a `Tuned`, and its file
    tuned_scores, tuned_checks: the scores that it is applied to, and whether it fits a model
    compare: every rule side by side
    chunks: more than memory holds
    unlabelled, match, priors, label_shift, resample: without labels; how often classes occur, and how sure that is
    measure: measures of one set of predictions
"""
