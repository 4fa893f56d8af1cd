"""Official files: downloads, archives, images and safe unpickling."""
