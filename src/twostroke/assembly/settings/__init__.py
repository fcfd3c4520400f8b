"""Reads the user's wishes from options and the environment, and resolves the engine's configuration."""
