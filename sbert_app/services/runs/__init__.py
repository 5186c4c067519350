"""Runs: what they would do (estimate.py) and what they did, on disk (store.py, record.py, events.py)."""
