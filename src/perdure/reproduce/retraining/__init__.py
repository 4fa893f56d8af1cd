"""The study of MeGe and ReCo on CIFAR-10."""
