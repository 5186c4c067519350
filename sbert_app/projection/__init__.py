"""Maps of a corpus: UMAP, alone (maps.py) or two models side by side (aligned.py).

numba's compile cost is paid once, in the background (engine.py).
"""
