"""The words all rooms use: requests, plans, results, events, errors."""
