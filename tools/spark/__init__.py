"""The workshop that makes `spark`, the model that ships inside the package: corpus, tokenizer, training, scoring.

Knows: its own corpus, PyTorch (training only), the Hugging Face folder layout it writes.
Must not know: the twostroke engine; nothing in `src/` imports this package.
"""
