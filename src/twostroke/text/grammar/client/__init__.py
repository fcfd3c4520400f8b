"""A client's own Lark, read into rules and written as one pattern."""
