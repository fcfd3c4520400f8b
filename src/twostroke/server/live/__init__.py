"""Routes that show the running engine: steps, the trace, explanations."""
