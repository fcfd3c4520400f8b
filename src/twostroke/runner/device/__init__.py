"""Steps that a device runs: begun before the host has looked at the step ahead, with tokens sampled on the device."""
