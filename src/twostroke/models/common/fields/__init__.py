"""Reading of config fields that several families share."""
