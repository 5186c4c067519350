"""Vectors, map and clusters of a corpus as Parquet, as Apple's embedding-atlas reads them."""
