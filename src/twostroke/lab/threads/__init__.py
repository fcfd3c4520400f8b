"""The native pool of threads as a model: how long products take with any number of threads on any topology."""
