"""Ops that multiply rows with packed matrices, tables and experts."""
