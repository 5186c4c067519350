"""Experiments: grids of runs (`ablations`, `folds`), their statistics, and the tables that ship."""
