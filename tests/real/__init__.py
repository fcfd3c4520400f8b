"""Published weights: what random ones and spark cannot show."""
