"""The model store: short names, records of what was pulled, what may be removed."""
