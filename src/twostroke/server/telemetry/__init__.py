"""A server's own figures: metrics, logs, spans, explanations.

Knows: the engine's records.
Must not know: request fields.
"""
