"""The Train page: a form that starts runs, their curves, and the list of all."""
