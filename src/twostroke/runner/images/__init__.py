"""Runs the encoder of images, and the steps whose rows contain images."""
