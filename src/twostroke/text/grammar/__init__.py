"""Grammars to token masks, through the `llguidance` library (loaded with the first grammar).

Knows: grammar sources, token bytes.
Must not know: logits, the scheduler, HTTP.
"""
