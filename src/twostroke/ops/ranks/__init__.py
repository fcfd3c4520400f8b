"""Ops by which the ranks, or the stages, of one model exchange values."""
