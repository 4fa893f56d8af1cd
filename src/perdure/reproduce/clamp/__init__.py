"""The CLAMP paper (Rivera et al. 2022): its tables and figures from the authors' curves, and its experiment on Split MNIST."""
