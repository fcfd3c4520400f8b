"""Formats whose calls look like code, or have braces of their own."""
