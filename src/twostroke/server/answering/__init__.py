"""From a checked call to the bytes that its client reads: the generation, its timers, and answers as streams."""
