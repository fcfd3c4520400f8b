"""Model files of families whose layers keep states of fixed size, next to attention."""
