"""Evaluation: models × data sets in tables like the paper's Tables 1 and 2, with intervals and paired tests."""
