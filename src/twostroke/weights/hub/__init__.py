"""Models from a hub: names, downloads, resuming."""
