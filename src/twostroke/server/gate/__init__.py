"""What stands between a socket and a request: sizes, keys, queues, refusals.

Knows: bytes, counts, clocks.
Must not know: models, answers.
"""
