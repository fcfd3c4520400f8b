"""Model files of families that keep states of fixed size and nothing else: no layer has attention."""
