"""The pages, a folder each. Their page.py has a function ``build(services)``; `sbert_app.server.pages` builds them.

Nothing here imports torch, so that the first paint does not wait for it.
"""

# The first one is the front page.
PAGES = ("compare", "bulk", "train", "ablation", "evaluate", "explore", "label", "learn")
