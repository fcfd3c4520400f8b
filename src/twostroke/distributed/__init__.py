"""One model, or several copies of it, in several processes: fronts, replicas and ranks."""
