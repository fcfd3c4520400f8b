"""The shapes of model families, their random GGUF files, and the measurements that are made with these files."""
