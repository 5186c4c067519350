"""Evaluation: models × data sets -> a table like the paper's Tables 1 and 2, with intervals and paired tests.

fingerprint, cache    what a result depends on; results on disk
eval_result                       one model on one data set: scores, correlation, bootstrap replicates
grid                              all of them, filled while others read
results, difference               what tables and figures read: measured now (`grid`) or precomputed
precomputed, paper                the table that ships; the figures that the paper reports
table, export                     rows and columns; Markdown, LaTeX, CSV
error_analysis, labels, transfer  where a model errs; triplets and NLI labels; classification of frozen vectors
"""
