"""Makes a tokenizer.json from the vocabularies of model folders that have none."""
