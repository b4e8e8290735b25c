"""One training loop for everything that learns, on lightning-fabric, with checkpoints that resume bit for bit."""
