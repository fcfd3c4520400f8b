"""The messages of fronts and replicas, and how they map to the engine's own types. Pure."""
