"""Executable worlds, and the contract they must pass."""
