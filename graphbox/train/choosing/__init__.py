"""Settings that the data chooses before a training: suggestions of the kind of model, and a search."""
