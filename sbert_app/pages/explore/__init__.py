"""A corpus: map, search, similar pairs, clusters. A file a tab."""
