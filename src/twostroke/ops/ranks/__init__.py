"""Ops by which the ranks, or the stages, of one model meet.

Knows: values.
Must not know: processes, how numbers travel.
"""
