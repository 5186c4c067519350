"""Evaluation: models × data sets in tables like the paper's Tables 1 and 2, with intervals and paired tests.

results         one model on one data set, and many: estimates with intervals, paired tests, rankings
grid            results that are measured now and stored on disk
precomputed     the tables that ship: our results, and the figures of the paper
table           rows and columns, also as Markdown, LaTeX and CSV
decisions       thresholds of several models; triplets and labels
error_analysis  pairs on which a model errs
transfer, cost  classification of frozen vectors; quality by the size of vectors
"""
