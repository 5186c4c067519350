"""Long work: its progress and states (`watch`), the threads that do it (`tasks`), and the connection to Ray."""
