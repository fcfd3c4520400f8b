"""Cuts images into tiles by the rules of each family of models: one file for each family, and the registry that finds
it."""
