"""The JSON of answers, one file an API."""
