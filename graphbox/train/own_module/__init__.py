"""Trains a user's own ``torch.nn.Module`` on batches of the public loaders."""
