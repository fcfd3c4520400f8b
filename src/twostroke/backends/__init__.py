"""Implementations of the ops."""
