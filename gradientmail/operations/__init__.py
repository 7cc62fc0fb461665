"""What a person does to a run: create it, look at it, ask it to stop, export its model."""
