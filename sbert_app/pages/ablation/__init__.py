"""The paper's Table 6, measured."""
