"""Similarities grow with likeness, for pairs and for all with all, for dense and sparse vectors alike."""

import numpy as np
import pytest
import torch

from training.models.lexical import TfIdf
from training.similarities import SIMILARITIES, row_similarities


def test_sparse_vectors_are_compared_as_dense_ones_are(monkeypatch):
    monkeypatch.setattr("training.similarities.DENSE_ROWS", 2)  # several blocks
    texts = ["a man plays", "a man sings", "the dog", "a dog", "", "a guitar"]
    sparse = TfIdf().encode_sparse(texts)
    dense = TfIdf().encode(texts)
    found = row_similarities(sparse[:3], sparse[3:])
    for name, similarity in SIMILARITIES.items():
        assert found[name] == pytest.approx(similarity.rows(dense[:3], dense[3:]), abs=1e-6)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_the_functions_of_a_similarity_agree(name):
    similarity = SIMILARITIES[name]
    random = np.random.default_rng(0)
    u, v = (random.standard_normal((5, 8)).astype(np.float32) for _ in range(2))
    rows = similarity.rows(u, v)
    assert similarity.tensor_rows(*map(torch.from_numpy, (u, v))).numpy() == pytest.approx(
        rows, abs=1e-5
    )
    assert similarity.matrix(*map(torch.from_numpy, (u, v))).diag().numpy() == pytest.approx(
        rows, abs=1e-5
    )
    assert SIMILARITIES["cosine"].rows(np.zeros((1, 3)), np.ones((1, 3)))[0] == 0
