"""Experiments: grids of runs (ablations, cross-validation), their statistics, and the precomputed tables."""
