"""Beam search: beams are sequences of the scheduler, and this package decides how each one continues."""
