"""Maps of a corpus: UMAP of one model's vectors, or aligned maps of two models.

points = draw(vectors, MapSettings(dimensions=2, seed=0), home)          # float32 (N, 2); same seed, same map
before, after = draw_aligned(vectors_before, vectors_after, MapSettings(), home)
compile_umap(home)                                                       # half a minute, once, or with the first map
"""

from sbert_app.services.maps.projection import MapSettings, compile_umap, draw, draw_aligned

__all__ = ["MapSettings", "compile_umap", "draw", "draw_aligned"]
