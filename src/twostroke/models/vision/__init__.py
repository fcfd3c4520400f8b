"""Encoders of images, one file for each kind of tower."""
