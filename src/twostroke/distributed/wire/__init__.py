"""The messages of fronts and replicas, and what they say in the engine's own words. Pure."""
