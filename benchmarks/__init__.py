"""Benchmarks: scripts that measure, beside others and on this machine. ``python -m benchmarks NAME``; see __main__."""
