"""The parameters by which the tokens of one request are chosen."""
