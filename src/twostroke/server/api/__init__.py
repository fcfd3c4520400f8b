"""The request fields that the APIs take, and the JSON of their answers."""
