"""Kernels that are defined and called as MLX has them."""
