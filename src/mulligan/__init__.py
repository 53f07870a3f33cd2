"""Memory for language agents in which every lesson was tried before it was stored."""

__version__ = "0.1.0"
