"""Maps of a corpus: UMAP, alone or two models side by side, so that the same sentence lies at about the same place.

points = draw(vectors, MapSettings(dimensions=2, seed=0), home)          # float32 (N, 2); same seed, same map
before, after = draw_aligned(vectors_before, vectors_after, MapSettings(), home)

numba's compile cost is paid once a home folder, by the app in the background (engine.py).
"""

from sbert_app.services.maps.projection import MapSettings, draw, draw_aligned

__all__ = ["MapSettings", "draw", "draw_aligned"]
