"""Vocabularies of model folders that have no tokenizer.json, as the tokenizer.json that stands for them."""
