"""Runs: what they would do (`estimate`), how they are executed, and what they did, on disk (`store`)."""
