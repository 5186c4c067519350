"""The Ablation page: the paper's Table 6, measured."""
