"""Passes over the text of LLVM IR: each takes a function's lines and gives lines back."""
