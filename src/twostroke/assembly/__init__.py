"""The one composition root: every object is built here."""
