"""Formats whose arguments are text between tags."""
