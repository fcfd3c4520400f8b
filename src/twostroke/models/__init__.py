"""Models: one file each, which reads the config of an architecture and says its program over the ops."""
