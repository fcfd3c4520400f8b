"""The one composition root: it resolves the settings and builds every engine."""
