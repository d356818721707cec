"""The methods compared: one referee scores every map alike."""
