"""The commands of ``python -m sbert_app``, one file for each subject, and the ``options`` that they share.

A command reads its options, calls a service and prints the result. Heavy libraries such as torch
are imported when a command runs, so that ``--help`` does not wait for them.
"""
