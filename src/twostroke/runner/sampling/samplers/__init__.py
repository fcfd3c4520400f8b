"""Further samplers, in addition to top-k, top-p and min-p. Each is one object that leaves out tokens of a row or
changes their weights."""
