"""Runs scheduler and executor as a replica in a process of its own. Fronts reach it by frames, and replicas send each
other pages."""
