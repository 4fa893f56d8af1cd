"""Do explanations survive retraining? MeGe, ReCo and weight randomization."""
