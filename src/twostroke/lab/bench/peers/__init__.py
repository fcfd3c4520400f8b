"""Other engines. Each has an environment of its own and is driven as a process with JSON in and out."""
