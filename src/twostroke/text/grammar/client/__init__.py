"""Reads a Lark grammar that a client sends, and translates it into rules and into one regular expression."""
