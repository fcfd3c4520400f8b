"""KV pages: which sequences hold and share them, which may be taken back.

Knows: page ids, reference counts, token ids.
Must not know: tensors, bytes, requests' text, time.
"""
