"""Make assets/calibration.json: the default model's curves from cosine to gold score, one for each pooling.

python -m scripts.calibrate
"""

from __future__ import annotations

from sbert_app.services.compare.calibration import SHIPPED, fit_on_stsb, save_calibration
from training.catalogue import DEFAULT_MODEL
from training.models.encoder import Encoder
from training.pooling import PAPER_POOLINGS
from training.sources.home import home_folder


def main() -> None:
    """Encode in float32, so that every machine writes the same file."""
    home = home_folder()
    encoder = Encoder.load(DEFAULT_MODEL, dtype="float32", home=home)
    for pooling in PAPER_POOLINGS:
        curve = fit_on_stsb(encoder.with_pooling(pooling), home)
        save_calibration(DEFAULT_MODEL, pooling, curve, SHIPPED)
        print(f"{pooling}: cosine {curve.cosines[0]} … {curve.cosines[-1]} -> gold {curve.gold[0]} … {curve.gold[-1]}")


if __name__ == "__main__":
    main()
