"""Texts to vectors and scores: what stands around a model that makes no text."""
