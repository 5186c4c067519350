"""Runs: what they would do (plan.py), and what they did, on disk (store.py, record.py, tail.py)."""
