"""Which network suits which explainer."""
