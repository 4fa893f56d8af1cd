"""Readers of users' data: npz files, image folders and tables."""
