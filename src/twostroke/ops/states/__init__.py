"""Ops of models that keep a state of fixed size for each sequence."""
