"""Evaluate models, with confidence intervals. One file for each tab."""
