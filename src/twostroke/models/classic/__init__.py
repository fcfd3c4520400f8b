"""Dense decoders with layer norms, one file each: learned positions, slopes by distance, early rotary positions."""
