"""Reading a model from the disk before the engine knows it: what the last start read, and a thread that reads it."""
