"""Dense decoders with layer norms, one file for each family. Their positions are learned, slopes by distance, or early
rotary positions."""
