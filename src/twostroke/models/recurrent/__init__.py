"""Model files of families that keep states of fixed size and nothing else: no layer has attention.

Knows: config fields, the ops.
Must not know: backends.
"""
