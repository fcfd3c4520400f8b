"""Guessing the next tokens of a sequence, and deciding how many guesses a step should verify.

Knows: token ids, predicted step times, which guesses came true.
Must not know: the scheduler, executors, text.
"""
