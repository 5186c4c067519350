"""A corpus of sentences: encode it, search it, find its most similar pairs.

corpus = Corpus.from_file("reviews.csv")
embedded = encode(corpus, encoder, cache)
most_similar_pairs(embedded.vectors, k=10)   # [(i, j, cosine), …], best first
"""

from sbert_app.services.corpus.corpus import Corpus, GoldPairs
from sbert_app.services.corpus.embedded import EmbeddedCorpus, encode
from sbert_app.services.corpus.similar_pairs import most_similar_pairs, near_duplicates

__all__ = ["Corpus", "EmbeddedCorpus", "GoldPairs", "encode", "most_similar_pairs", "near_duplicates"]
