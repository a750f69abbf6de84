"""x86-64 processors with AVX-512 or AVX2: explicit vectors, threads, streaming stores."""
