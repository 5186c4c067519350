"""python app.py [options of serve]: the app in the browser, the same as python -m sbert_app serve."""

import sys

from sbert_app.cli import main

if __name__ == "__main__":
    sys.exit(main(["serve", *sys.argv[1:]]))
