"""The words that all rooms use: requests, plans, results, events, errors, model and machine descriptions."""
