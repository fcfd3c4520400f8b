"""Ollama's API for its clients: the same requests and the same engine in another form."""
