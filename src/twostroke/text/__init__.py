"""Converts between text and token ids: tokenizer, chat template, and the machines that turn tokens back into text.

Each machine is fed pieces: `feed(piece)`, then `finish()` once.
"""
