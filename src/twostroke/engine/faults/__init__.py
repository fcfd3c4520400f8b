"""Faults of steps: a fault ends as few requests as possible, and a crash is explained afterwards."""
