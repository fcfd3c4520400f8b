"""What a model and a machine are, in numbers: read from their own descriptions, never measured here."""
