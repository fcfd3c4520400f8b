"""KV pages: which sequences hold and share them, which may be taken back."""
