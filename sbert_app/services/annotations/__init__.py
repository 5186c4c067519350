"""Pairs that people judge: which are worth judging, what was said about them, and what follows for a model."""
