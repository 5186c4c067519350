"""The Label page: people judge their own pairs, and train on them."""
