"""Files that a user attaches on the page and that a browser cannot read as text."""
