"""The commands of ``python -m sbert_app``, a file for each subject, and ``options``, which they share.

A command reads its options, calls a service and prints the result. Nothing heavy is imported before a command runs:
``--help`` must not wait for torch.
"""
