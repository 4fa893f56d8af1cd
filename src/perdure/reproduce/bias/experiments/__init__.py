"""The experiments of the attribution-bias paper, one module per table or figure."""
