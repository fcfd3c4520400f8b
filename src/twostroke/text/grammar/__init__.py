"""Grammars to token masks, through the `llguidance` library (loaded with the first grammar)."""
