"""Between text and token ids: tokenizer, chat template, and the machines that turn tokens back into text.

Each machine is fed pieces: `feed(piece)`, then `finish()` once.

Knows: bytes, token ids, templates.
Must not know: logits, requests, HTTP.
"""
