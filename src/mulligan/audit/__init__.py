"""Audit: is what a memory holds still true, and was it ever."""
