"""Builds what guesses tokens: proposers, draft models, heads and layers of a model, with the memory that they need."""
