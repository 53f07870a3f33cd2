"""Loaders of public benchmark formats."""
