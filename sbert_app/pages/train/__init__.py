"""Choose a run, start it, watch it."""
