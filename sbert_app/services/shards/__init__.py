"""Many files in, a folder of Parquet out: `score` and `encode` for inputs of any size, on one machine or on Ray."""
