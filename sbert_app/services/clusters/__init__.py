"""Clusters of a corpus: HDBSCAN, k-means or hierarchical (`clustering`), their contents (`summary`), their export."""
