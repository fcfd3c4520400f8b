"""Files that the page attaches and that a browser cannot read as text."""
