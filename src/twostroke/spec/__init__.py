"""What a model and a machine are, in numbers: read from their own descriptions, never measured here.

Knows: config.json fields, sizes of weight and KV formats.
Must not know: tensors, files' contents beyond JSON, time.
"""
