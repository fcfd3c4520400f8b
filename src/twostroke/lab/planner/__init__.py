"""What a model will cost on a machine, before anything but its config.json is read."""
