"""The architectures of GGUF files, as what Hugging Face calls them: an entry for each, and what converters did.

Knows: names on both sides.
Must not know: files, how values are read, model files.
"""
