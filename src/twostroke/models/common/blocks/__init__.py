"""Blocks of layers that several families share: attention, feed-forward, states, norms."""
