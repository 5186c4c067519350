"""Judge pairs of one's own, and train on them."""
