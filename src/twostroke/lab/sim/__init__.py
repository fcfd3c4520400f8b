"""The production heart under a virtual clock, with predictions in place of a model."""
