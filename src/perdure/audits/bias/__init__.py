"""Can the explanations be trusted? Attribution bias against Shapley values."""
