"""Samplers next to top-k, top-p and min-p: each is one object that leaves out tokens of a row or weighs them anew."""
