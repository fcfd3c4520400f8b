"""The architectures of GGUF files, as what Hugging Face calls them: an entry for each, and what converters did."""
