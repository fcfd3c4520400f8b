"""Encoders of images in GGUF files (mmproj): the names and fields of each type of projector."""
