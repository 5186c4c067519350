"""``python app.py [options of serve]``: serve the app, as ``sbert-lab serve`` does. Also what a hosted Space runs."""

import sys

from sbert_app.__main__ import run

if __name__ == "__main__":
    run(["serve", *sys.argv[1:]])
