"""How one call is written: six notations as code. Formats are data for them.

Knows: names and arguments as text.
Must not know: which model writes which notation.
"""
