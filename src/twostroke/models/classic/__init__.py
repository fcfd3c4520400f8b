"""Dense decoders with layer norms, one file for each family. Their positions are learned vectors, slopes by distance,
or an early form of rotary positions."""
