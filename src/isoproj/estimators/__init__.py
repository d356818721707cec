"""scikit-learn transformers; the mathematics is elsewhere."""
