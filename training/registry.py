"""The names of the built-in models, in one place.

``training.models`` opens them and ``training.sources`` fetches them, so the names live beside both: ``models``
imports ``sources``, and a registry inside ``models`` would make that a cycle.
"""

from __future__ import annotations

DEFAULT_MODEL = "all-MiniLM-L6-v2"
LARGE_MODEL = "all-mpnet-base-v2"
ENCODERS = (DEFAULT_MODEL, LARGE_MODEL)

DEFAULT_CROSS_ENCODER = "minilm-stsb"
CROSS_ENCODERS = {DEFAULT_CROSS_ENCODER: DEFAULT_MODEL, "mpnet-stsb": LARGE_MODEL}  # adapter -> the encoder it adapts

TFIDF, GLOVE = "tfidf", "glove"
BASELINES = (TFIDF, GLOVE)

# Networks over word vectors with random weights, the paper's systems from before BERT: InferSent's and the Universal
# Sentence Encoder's.
BILSTM, DAN = "scratch:bilstm", "scratch:dan"
WORD_ENCODERS = (BILSTM, DAN)
