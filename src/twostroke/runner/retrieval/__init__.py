"""Turns texts into vectors and scores with a model that generates no text."""
