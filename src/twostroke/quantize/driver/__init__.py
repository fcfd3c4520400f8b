"""Quantizing a folder: the model runs layer by layer on a text, what its products read is measured, codes are written.
"""
