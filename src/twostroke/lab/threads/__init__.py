"""A model of the native pool of threads: how long products take with any number of threads on any topology."""
