"""What passes between server and clients, and what both keep from round to round."""
