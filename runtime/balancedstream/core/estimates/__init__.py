"""What balancing and scaling would have brought an application that ran without them."""
