"""The tokenizers of GGUF files, as the tokenizer.json that they were converted from would say them.

Knows: nothing of its own.
Must not know: tensors, models.
"""
