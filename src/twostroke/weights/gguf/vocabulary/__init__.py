"""The tokenizers of GGUF files, turned back into the tokenizer.json from which they were converted."""
