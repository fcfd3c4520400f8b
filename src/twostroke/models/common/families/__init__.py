"""Code that the model files of one family of architectures share."""
