"""A corpus of sentences and its vectors: searches, neighbours, and the corpora that visitors have open."""
