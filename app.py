"""python app.py [options of serve]: the app in the browser, the same as python -m sbert_app serve."""

import sys

from sbert_app.cli import main
from sbert_app.leaving import leave

if __name__ == "__main__":
    leave(main(["serve", *sys.argv[1:]]))
