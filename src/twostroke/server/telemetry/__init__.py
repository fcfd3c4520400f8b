"""A server's own figures: metrics, logs, spans, explanations."""
