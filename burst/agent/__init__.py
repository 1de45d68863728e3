"""What runs on a node beside the training: it watches over it and ends it."""
