"""The HTTP APIs (OpenAI's, Anthropic's, Ollama's, llama.cpp's): the fields of their requests, and the JSON of their
answers."""
