"""The HTTP server: the APIs of OpenAI and Anthropic, the page, metrics and health."""
