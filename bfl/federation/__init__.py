"""Messages between server and clients, and the state that both keep from round to round."""
