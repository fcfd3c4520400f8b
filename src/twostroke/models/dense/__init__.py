"""Dense decoders with RMS norms and rotary positions, one file for each family."""
