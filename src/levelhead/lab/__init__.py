"""Training: data, nets, recipes, the loop, runs and sweeps. Knows methods, knows no paper."""
