"""What is done before an engine is built: files are read ahead, weights are packed, memory is shared among models."""
