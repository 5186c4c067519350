"""Data -> Plotly figure. No state, no model; one look for all, in style.py."""
