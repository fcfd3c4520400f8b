"""Parts of tools/measure_streaming.py: a simulated device, servers around it, a cheap client."""
