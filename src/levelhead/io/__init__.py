"""Users' data files: samples, names and counts, read from arrays of any known format; no code in them is run."""
