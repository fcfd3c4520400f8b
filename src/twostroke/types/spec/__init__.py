"""Models and machines in numbers. The numbers come from config.json or vendors' documents, or are assumed; this package
measures nothing."""
