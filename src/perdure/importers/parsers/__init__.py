"""Parsers of single file formats: .npy and .npz arrays, TensorBoard events, printed Python values."""
