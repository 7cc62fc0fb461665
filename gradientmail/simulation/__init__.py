"""The real closer and the real learner on virtual time, over a store that fails by a seed."""
