"""A server's own measurements: metrics, logs, spans, explanations."""
