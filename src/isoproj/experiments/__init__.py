"""Methods side by side: one referee, one comparison, tidy records."""
