"""What a front decides: which replica computes a request, and what happens when one is lost. Pure."""
