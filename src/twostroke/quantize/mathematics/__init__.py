"""Which codes stand for a matrix so that its products change least: pure functions on arrays."""
