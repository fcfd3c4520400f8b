"""Guessing the next tokens of a sequence, and deciding how many guesses a step should verify."""
