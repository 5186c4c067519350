"""Functions from data to Plotly figures, without state or models; they share the look in style.py."""
