"""Which pairs count, and exact answers about what a linear map keeps of them."""
