"""Write requirements.lock, the exact versions of the packages in this environment: python -m scripts.lock"""

import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements.lock"
HEADER = """\
# The exact versions of the last tested environment, resolved by pip for Python {python} on {platform}: the
# constraints of `make app`, `make test`, the containers and docs/install.md. Written by `make lock`.
# Left out are pip itself, build suffixes (torch 2.13.0+cpu reads 2.13.0), and what torch's CUDA builds add on Linux
# (nvidia-*, triton), which follow from torch.
"""
LEFT_OUT = ("nvidia-", "triton==", "pip==", "sbert-lab")


def main() -> None:
    command = [sys.executable, "-m", "pip", "freeze", "--all", "--exclude-editable"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    # A build suffix follows a plus.
    pinned = [
        line.split("+")[0] for line in lines if "==" in line and not line.startswith(LEFT_OUT)
    ]
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    LOCK.write_text(HEADER.format(python=python, platform=sys.platform) + "\n".join(pinned) + "\n")
    print(f"{LOCK.name}: {len(pinned)} packages")


if __name__ == "__main__":
    main()
