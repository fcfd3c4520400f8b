"""What the user asked for: options, the environment, and the engine's configuration."""
