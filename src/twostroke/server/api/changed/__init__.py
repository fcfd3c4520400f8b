"""Leaves parts out of a request, or changes them, so that it can be answered. Each change has a note."""
