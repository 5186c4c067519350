"""Evaluation: models × data sets -> a table like the paper's Tables 1 and 2, with intervals and paired tests.

results                           one model on one data set, and many; estimates with intervals, paired tests
grid                              measured now, filled while others read; kept on disk
precomputed                       the tables that ship: ours, and the figures that the paper reports
table                             rows and columns; as Markdown, LaTeX, CSV
error_analysis, labels, transfer  where a model errs; triplets and NLI labels; classification of frozen vectors
"""
