"""Maps of a corpus: UMAP of one model's vectors, or aligned maps of two (`projection`), and samples (`corpus_map`)."""
