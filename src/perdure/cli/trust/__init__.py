"""The commands perdure trust bias and perdure trust retraining."""
