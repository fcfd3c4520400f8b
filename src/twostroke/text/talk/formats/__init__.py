"""The formats that were written by hand: one file for each, with its examples."""
