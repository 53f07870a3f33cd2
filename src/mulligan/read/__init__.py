"""The read path: from a situation to guidance, or to nothing."""
