"""Steps in which nothing but one more token for each stream can happen, done many at a time."""
