"""Does a kernel still mean what its initial program says? Three independent legs give the answer."""
