"""Two sentences, or a few hundred."""
