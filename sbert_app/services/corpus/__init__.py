"""A corpus of sentences, and its vectors.

corpus = Corpus.from_file("reviews.csv")
embedded = encode(corpus, encoder, cache)
most_similar_pairs(embedded.vectors, k=10)   # of `training.search`: [(i, j, cosine), …], best first
"""

from sbert_app.services.corpus.corpus import Corpus, GoldPairs
from sbert_app.services.corpus.embedded import EmbeddedCorpus, encode

__all__ = ["Corpus", "EmbeddedCorpus", "GoldPairs", "encode"]
