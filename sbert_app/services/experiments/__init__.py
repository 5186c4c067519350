"""Ablations: a grid of runs and what it adds up to; the measured tables that ship."""
