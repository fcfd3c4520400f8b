"""Several models in one server: each is a process behind the front, loaded when it is wanted."""
