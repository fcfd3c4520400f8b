"""Texts to vectors and scores: what stands around a model that makes no text.

Knows: tokenizers, the files that sentence-transformers writes, sums of rows.
Must not know: engines, HTTP.
"""
