"""Implementations of the ops.

Knows: op contracts, one device each.
Must not know: models, cache policy, requests.
"""
