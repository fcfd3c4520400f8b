"""Images that other machines serve: which hosts an operator allows, and how a file is fetched from one of them."""
