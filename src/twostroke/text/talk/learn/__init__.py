"""Finds the format of a model from its files and from the text that its template writes, and checks the result."""
