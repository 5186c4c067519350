"""The queue that executes runs, outside the web process (queue.py), and the worker at its other end."""
