"""Grammars that hold a model's answer to calls in its own format.

Knows: formats, llguidance's Lark.
Must not know: requests, how a grammar is compiled.
"""
