"""The commands of ``python -m sbert_app``, one file each, and ``options``, which they share. They read options, call a
service and print its result.

Nothing heavy is imported before a command runs: ``--help`` must not wait for torch.
"""
