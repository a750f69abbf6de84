"""What tests need, ours and a vendor's: random programs, random walks, mutants."""
