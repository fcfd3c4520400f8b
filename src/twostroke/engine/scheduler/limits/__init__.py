"""Limits of what one step may hold."""
