"""Model files of families whose layers keep states of fixed size, beside attention."""
