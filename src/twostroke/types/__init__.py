"""The types that all rooms share: requests, plans, results, events, errors, model and machine descriptions."""
