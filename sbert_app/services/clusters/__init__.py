"""Clusters of a corpus: HDBSCAN or hierarchical (`clustering`), their contents (`summary`) and `keywords`."""
