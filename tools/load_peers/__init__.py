"""Servers of other engines that `tools.measure_load` measures next to Twostroke."""
