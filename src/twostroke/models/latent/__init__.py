"""Model files of families with latent attention, one a family."""
