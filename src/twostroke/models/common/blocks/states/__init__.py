"""Blocks of layers that keep a state of fixed size: scans, and the products and convolutions around them."""
