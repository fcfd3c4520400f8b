"""Decoders with mixtures of experts in which some layers have a window. Each architecture has one file."""
