"""The lessons of the Learn page: what they say (`text`) and what each measures on the spot, one module a lesson.

A measurement takes the shelf of models and the home folder, small samples of the STS benchmark or of the example
corpus, and answers within about two seconds on two cores. Nothing here is computed beforehand.
"""
