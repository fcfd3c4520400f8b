"""The model store: short names, records of models that were pulled, files that may be removed."""
