"""Runs: what they would do (`estimate`, `rate`), how they are executed, and what they did, on disk (`store`)."""
