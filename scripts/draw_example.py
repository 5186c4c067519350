"""Draw the map that ships with the app: the example corpus under the default model, as the Explore page opens.

python -m scripts.draw_example      (after a change of the example, of the maps, or of the default settings)
"""

from __future__ import annotations

from sbert_app.services.corpus.embedded import encode
from sbert_app.services.corpus.embedding_cache import SHIPPED, EmbeddingCache
from sbert_app.services.maps.projection import MapSettings, draw, map_key
from sbert_app.services.models.cache import ModelCache
from sbert_app.settings import Settings
from training.registry import DEFAULT_MODEL


def main() -> None:
    """Draw it, and put it where the cache looks."""
    import numpy as np

    home = Settings.gather().home
    shelf = ModelCache(home)
    spaces = EmbeddingCache(shelf, home)
    space = encode(spaces.corpus(spaces.example()), shelf.encoder(DEFAULT_MODEL))
    SHIPPED.mkdir(parents=True, exist_ok=True)
    for old in SHIPPED.glob("*.npy"):
        old.unlink()
    file = SHIPPED / f"{map_key(MapSettings(), space)}.npy"
    np.save(file, draw(space.vectors, MapSettings(), home), allow_pickle=False)
    print(file)


if __name__ == "__main__":
    main()
