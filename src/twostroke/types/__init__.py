"""The types that all packages share: requests, plans, results, events, errors, model and machine descriptions."""
