"""The Compare page: two sentences, or a few hundred."""
