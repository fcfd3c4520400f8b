"""Model files of families with latent attention, one for each family."""
