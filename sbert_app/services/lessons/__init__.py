"""The lessons of the Learn page: their texts (`text`), and a module for each with the measurement of its demo.

A measurement gets the model cache and the home folder, uses a small sample of the STS benchmark or the example corpus,
and takes about two seconds on two cores. Nothing is precomputed.
"""
