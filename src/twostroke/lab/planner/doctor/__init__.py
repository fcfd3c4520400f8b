"""Measures this machine once, so that the time of any step can be predicted."""
