"""Quantizes a folder: the model runs layer by layer on a text, the inputs of its products are measured, and codes are
written."""
