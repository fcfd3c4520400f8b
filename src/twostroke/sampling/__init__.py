"""Logits to tokens.

Knows: one row of logits, sampling parameters, the tokens so far.
Must not know: the scheduler, other rows of the batch.
"""
