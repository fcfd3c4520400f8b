"""Defines the messages of fronts and replicas, and maps them to the engine's own types. The modules are pure."""
