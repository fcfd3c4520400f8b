"""Several models in one server. Each has a process of its own, which is started when a request wants the model."""
