"""Converts earlier turns, as the APIs of agents write them, into chat messages."""
