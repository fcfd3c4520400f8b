"""The verbs of `twostroke bench`, and the code that they share."""
