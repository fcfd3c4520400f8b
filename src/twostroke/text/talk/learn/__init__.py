"""Which format a model has: what its files say, what its template writes, and what of that is believed."""
