"""The workshop that makes `spark`, the model that ships inside the package: corpus, tokenizer, training, scoring."""
