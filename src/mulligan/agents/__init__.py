"""Agents that play any world: the baselines, with or without memory."""
