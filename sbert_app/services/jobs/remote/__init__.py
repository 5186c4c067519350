"""Runs on machines that do not share the home folder: what they need and what becomes of them goes through a store.

    home folder A                     the store, $SBERT_STORE                      a worker, home folder B
    offer.py   ---- inputs, job.json, the last checkpoint ---->  work.py
    follow.py  <---- status.json, events, log, checkpoint, model ----  push.py

The run's folder in home A is the truth, as always; the store holds what is under way and is emptied when home A has it.
"""
