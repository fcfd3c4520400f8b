"""A model as data: the calls of its program, and what they read and write. Passes change a program; backends run it."""
