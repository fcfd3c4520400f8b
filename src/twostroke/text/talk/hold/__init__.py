"""Grammars that force a model to write calls in its own format."""
