"""A thread reads a model's files before the engine knows the model; a record of the last start names the files."""
