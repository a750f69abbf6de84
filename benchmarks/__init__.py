"""Programs that time and compare. It is a package, since an installed one may have the same name."""
