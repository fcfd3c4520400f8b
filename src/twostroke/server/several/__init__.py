"""Several models in one server. Each has a process of its own, which is loaded when it is wanted."""
