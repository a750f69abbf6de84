"""A library: verified kernels as sources, a header, a shared object and a manifest that tells how."""
