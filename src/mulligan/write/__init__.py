"""The write path: from a failed attempt to a checked record."""
