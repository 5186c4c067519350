"""python app.py [options of serve]: the app in the browser, the same as python -m sbert_app serve."""

import sys

from sbert_app.cli import main
from sbert_app.process import exit_now

if __name__ == "__main__":
    exit_now(main(["serve", *sys.argv[1:]]))
