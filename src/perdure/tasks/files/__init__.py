"""Official files: downloads, archives, images and plain pickles."""
