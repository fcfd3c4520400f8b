"""How one call is written: six notations as code. Formats are data for them."""
