"""Evaluation: models × data sets -> a table as the paper's Tables 1 and 2, with intervals and paired tests.

choice (which model), identity and cache (what need not be computed twice), cell (one model on one data set), board
(all of them, as they fill), results (what a table is made of, live or shipped), table, export (Markdown, LaTeX, CSV),
measured (the table that ships), paper (the paper's own rows), mistakes (where a model errs).
"""
