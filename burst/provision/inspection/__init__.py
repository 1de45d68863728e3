"""What pools have and cost, and what of them does not work: one module for each kind of pool."""
