"""The MeGe and ReCo study on CIFAR-10."""
