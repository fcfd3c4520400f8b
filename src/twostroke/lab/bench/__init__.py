"""Measurements of engines: of a single one in two phases, of several next to each other, and of servers under load."""
