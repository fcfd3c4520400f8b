"""The production scheduler and cache under a virtual clock, with predictions in place of a model."""
