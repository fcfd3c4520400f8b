"""The formats that are known by hand: one file for each, with its examples."""
