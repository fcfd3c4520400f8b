"""Turns conversations as clients keep them into the form that one chat template accepts."""
