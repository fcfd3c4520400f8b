"""Turns grammars into token masks, through the `llguidance` library (loaded with the first grammar)."""
