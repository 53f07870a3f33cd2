"""Training: what learns from the rows of a store. The only place that may import torch and scikit-learn."""
