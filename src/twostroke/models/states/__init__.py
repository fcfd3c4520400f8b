"""Model files of families whose layers keep states of fixed size, beside attention.

Knows: config fields, the ops.
Must not know: backends.
"""
