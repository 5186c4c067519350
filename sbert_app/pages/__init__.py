"""The pages. A folder each, whose page.py has a ``build(services)`` that lays it out and wires it to services.

Nothing here imports torch: the first paint does not wait for it. `sbert_app.server` puts them together.
"""

PAGES = ("compare", "bulk", "train", "ablation", "evaluate", "explore", "label", "learn")  # the first is the front page
