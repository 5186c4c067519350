"""Explore a corpus: map, search, similar pairs, clusters. One file for each tab."""
