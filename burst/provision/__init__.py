"""Getting machines and giving them back."""
