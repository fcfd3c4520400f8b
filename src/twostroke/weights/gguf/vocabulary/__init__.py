"""The tokenizers of GGUF files, as the tokenizer.json that they were converted from would say them."""
