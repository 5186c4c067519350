"""Draw the map that ships with the app: the example corpus under the default model, with the default settings.

python -m scripts.draw_example      after a change of the example corpus, of the maps or of the default settings
"""

from __future__ import annotations

from sbert_app.services.corpus.embedded import encode
from sbert_app.services.corpus.open_corpora import SHIPPED, EmbeddingCache
from sbert_app.services.maps.projection import MapSettings, draw, map_key
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.store.cache import DiskCache
from sbert_app.settings import Settings
from training.catalogue import DEFAULT_MODEL
from training.models.model import VectorModel


def main() -> None:
    """Replace the shipped map."""
    home = Settings.gather().home
    models = ModelCache(home)
    embeddings = EmbeddingCache(models, home)
    embedded = encode(embeddings.corpus(embeddings.example()), models.get(DEFAULT_MODEL, VectorModel))
    SHIPPED.mkdir(parents=True, exist_ok=True)
    for old in SHIPPED.glob("*.npz"):
        old.unlink()
    key = map_key(MapSettings(), embedded)
    DiskCache(SHIPPED).put(key, draw(embedded.vectors, MapSettings(), home))
    print(key)


if __name__ == "__main__":
    main()
