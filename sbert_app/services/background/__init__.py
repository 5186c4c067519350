"""Long work: what it reports to (`Watch`), the states of its life (`State`), and threads that do it (`TaskRunner`)."""
