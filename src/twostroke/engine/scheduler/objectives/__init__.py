"""Objectives for TTFT and ITL: which requests get a promise, and how promises are kept."""
