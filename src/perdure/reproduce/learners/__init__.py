"""Published tables of learners: classic and memory-based methods side by side."""
