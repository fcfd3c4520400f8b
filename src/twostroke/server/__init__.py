"""The HTTP server: OpenAI's chat completions and completions, models, health, metrics.

Knows: the engine's async shell, tokenizer and chat template, through the protocols in parts.py.
Must not know: pages, models, kernels, configuration.
"""
