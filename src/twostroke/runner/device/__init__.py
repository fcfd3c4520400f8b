"""Steps that run on a device. They are begun before the host has looked at the step ahead, and tokens are sampled on
the device."""
