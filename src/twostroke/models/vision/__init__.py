"""Encoders of images, one file for each kind of tower.

Knows: config fields of towers, the order of their ops.
Must not know: text models, pixels, which backend runs.
"""
