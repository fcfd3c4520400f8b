"""The HTTP server: OpenAI's chat completions and completions, models, health, metrics."""
