"""Reads what users and files give: values of fields, JSON, paths, and why a file cannot be read."""
