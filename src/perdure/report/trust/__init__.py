"""The report's sections on trust and retraining: answers, tables and chart data."""
