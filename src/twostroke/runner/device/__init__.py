"""Steps that run on a device (GPU). A step is begun before the host has read the results of the step before it, and
tokens are sampled on the device."""
