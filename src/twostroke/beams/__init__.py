"""Beam search: beams are sequences of the scheduler, and this room says how each goes on.

Knows: log probabilities, the scheduler's ways to steer a sequence.
Must not know: executors, how text is made, HTTP.
"""
