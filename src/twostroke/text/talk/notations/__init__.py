"""The ways in which one call is written: six notations as code. Formats give the notations their data."""
