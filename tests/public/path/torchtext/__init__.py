"""In place of torchtext, which has no build for this PyTorch: the four names that language_translation uses."""
