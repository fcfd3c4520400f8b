"""The verbs of `twostroke bench`, and what they share."""
