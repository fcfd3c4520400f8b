"""Finds the encoder of images of a model, and builds the parts that open, encode and show images."""
