"""Code that several model files share: the registry, reading of usual fields, usual blocks."""
