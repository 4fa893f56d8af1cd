"""The part of the report about explanations: trust and retraining."""
