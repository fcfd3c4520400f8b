"""Encoders of images in GGUF files (mmproj): what each type of projector means."""
