"""Benchmarks: how fast the paths of Mulligan are, each beside a reference measured in the same run. `python -m bench`."""
