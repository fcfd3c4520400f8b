"""Descriptions of models and machines in numbers: read from their own descriptions, never measured in this package."""
