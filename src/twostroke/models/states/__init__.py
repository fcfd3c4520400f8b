"""Model files of families whose layers keep states of fixed size, alone or beside attention.

Knows: config fields, the ops.
Must not know: backends.
"""
