"""llama.cpp's own routes, over the same requests and the same engine."""
