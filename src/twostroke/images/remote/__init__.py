"""Images that other machines serve: the hosts that an operator allows, and how a file is fetched from one of them."""
