"""Grammars that hold a model's answer to calls in its own format."""
