"""Ollama's API, as its clients speak it: the same requests and the same engine in another form."""
