"""The page that the server shows in a browser."""
