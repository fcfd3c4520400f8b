"""Other engines, each in an environment of its own, driven as a process with JSON in and out."""
