"""What was planned and what it took, told to people."""
