"""Benchmarks of this machine and comparisons with other libraries: ``python -m benchmarks NAME``; see __main__."""
