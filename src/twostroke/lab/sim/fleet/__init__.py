"""Several simulated replicas on one time line: routers, transfers between them, and how many there are."""
