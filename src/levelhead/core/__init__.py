"""What `tune` does, to be read in this order.

counts, class_names, class_labels, head: how many samples a class has, its name, labels, the last layer
adjustment, rules: what is done to each class, and the table of ways to find it
metrics, samples: losses of small tables; held-out samples and the goal, checked once
calibration, per_class, metric_offsets, floors: the fit of a number for each class
one_strength, gamma_path: rules of one strength, by tables along the exact path
judge, doubts: what a choice is worth on samples it has not seen, and what speaks against it
tune, tuned, tuned_json, compare: from scores to a `Tuned`, its file, every rule side by side
unlabelled, priors, chunks, resample: without labels; shares of the classes; more than memory holds
measure: measures of one set of predictions
"""
