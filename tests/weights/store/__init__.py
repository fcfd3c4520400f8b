"""The model store."""
