"""A corpus of sentences: encode it, search it, find its most similar pairs.

corpus = Corpus.from_file("reviews.csv")
space = encode(corpus, encoder, cache)
most_similar_pairs(space.vectors, k=10)   # [(i, j, cosine), …], best first
"""

from sbert_app.corpus.corpus import Corpus, GoldPairs, Space, encode
from sbert_app.corpus.pairs import most_similar_pairs, repeats

__all__ = ["Corpus", "GoldPairs", "Space", "encode", "most_similar_pairs", "repeats"]
