"""What a server tells of itself: metrics, logs, spans, explanations.

Knows: the engine's records.
Must not know: request fields.
"""
