"""Measurements of one engine in its two phases, of several engines next to each other, and of servers under load."""
