"""Paired, fully costed comparisons of memories."""
