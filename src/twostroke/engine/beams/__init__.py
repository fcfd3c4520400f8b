"""Beam search: beams are sequences of the scheduler, and this room says how each goes on."""
