"""Converts between text and token ids: the tokenizer, the chat template, and the detokenizer and its filters, which
turn tokens back into text.

Each of these filters is fed pieces of an answer: `feed(piece)`, then `finish()` once.
"""
