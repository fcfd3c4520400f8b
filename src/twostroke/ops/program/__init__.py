"""A model as data: the calls of its program, and what they read and write. Passes work on it; backends run it."""
