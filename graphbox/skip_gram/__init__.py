"""Skip-gram on a device: the twin of ``csrc/train`` in kernels, over samplers and tables alone."""
