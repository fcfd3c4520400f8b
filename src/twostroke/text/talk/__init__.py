"""How models converse: one description for each way, and what is made of it."""
