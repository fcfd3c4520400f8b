"""Image files made into tiles: formats, limits, the process that decodes, and the rules of each family."""
