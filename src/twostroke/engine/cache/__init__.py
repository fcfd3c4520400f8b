"""KV pages: which sequences hold and share them, and which pages may be evicted."""
