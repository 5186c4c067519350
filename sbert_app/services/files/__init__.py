"""Files of pairs in, scored files out, streamed."""
