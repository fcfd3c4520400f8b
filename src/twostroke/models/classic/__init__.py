"""Dense decoders with layer norms, one file for each family. Their positions are learned vectors, biases of the scores
that grow with the distance (ALiBi), or an early form of rotary positions."""
