"""One model in several processes: fronts, replicas and ranks, and the messages between them."""
