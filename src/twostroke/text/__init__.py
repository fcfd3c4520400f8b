"""Converts between text and token ids: the tokenizer, the chat template, and the objects that turn the tokens of an
answer back into text.

These objects (detokenizer, stop strings, reader of turns) work on pieces: `feed(piece)` for each, then `finish()` once.
"""
